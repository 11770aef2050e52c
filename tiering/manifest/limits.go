// SPDX-License-Identifier: Apache-2.0

package manifest

const (
	// Format is the format number of entries, pages and page pointers that this binary writes, and the highest it reads.
	Format = 1
	// DefaultPageEntries is how many entries a page holds in production.
	DefaultPageEntries = 1000
	// MaxPageEntries bounds what a reader believes of a page.
	MaxPageEntries = 10_000
	// MaxPageBytes bounds a page object.
	MaxPageBytes = 64 << 20
	// maxObjectKey bounds an object key; S3 allows 1024.
	maxObjectKey = 1024
	// maxEntryEpochs bounds the leader epochs within one segment.
	maxEntryEpochs = 100_000
)
