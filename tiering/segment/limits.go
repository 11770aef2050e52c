// SPDX-License-Identifier: Apache-2.0

package segment

const (
	// Format is the format number this binary writes and the highest it reads.
	Format = 1
	// ChunkTarget closes a chunk: the batch that makes it this long, or longer, is its last.
	ChunkTarget = 64 << 10
	// TrailerLen is the length of the fixed-size trailer.
	TrailerLen = 18
	// MaxFooterBytes bounds what a reader believes of a trailer's footer length. 1 GiB of data makes a 600 KiB chunk index.
	MaxFooterBytes = 64 << 20
	// MaxSegmentBytes bounds the data of one segment and every position in it.
	MaxSegmentBytes = 16 << 30
	// MaxProducersRaw bounds the producer snapshot before compression.
	MaxProducersRaw = 256 << 20
	// maxString bounds strings of the identity: cluster id and topic name.
	maxString = 1024
	// maxHeader bounds the header.
	maxHeader = 8192
	// maxParts bounds an outline: 1 GiB that is not sealed yet.
	maxParts = 16 << 10
	// bodyGroup is how much a body reads from its source at a time.
	bodyGroup = 256 << 10
	// maxPooledBody is the largest buffer that a body leaves to the next one.
	maxPooledBody = 2 << 20
)
