// SPDX-License-Identifier: Apache-2.0

// Package card is what the Go clients share: a list of cases, each with a time limit, and one line of output per case.
package card
