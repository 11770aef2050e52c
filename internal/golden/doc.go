// SPDX-License-Identifier: Apache-2.0

// Package golden compares what a test made with a file of the tree. `go test PACKAGE -rewrite` writes the file anew. Only tests
// import it.
package golden
