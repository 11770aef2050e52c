// SPDX-License-Identifier: Apache-2.0

//go:build race

package hotlog

func init() { raceDetector = true }
