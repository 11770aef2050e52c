// SPDX-License-Identifier: Apache-2.0

// Command varve is the one binary: a node of a cluster, and the tools that talk to one.
//
// It does nothing by itself: the command line is package internal/cli.
package main
