// SPDX-License-Identifier: Apache-2.0

// Command sarama runs the cases with IBM/sarama, with the protocol version that its configuration has by default.
package main
