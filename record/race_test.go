// SPDX-License-Identifier: Apache-2.0

//go:build race

package record

func init() { raceDetector = true }
