// SPDX-License-Identifier: Apache-2.0

// Command segmentio runs the cases with segmentio/kafka-go.
package main
