// SPDX-License-Identifier: Apache-2.0

package record

const (
	// MaxDecompressedBytes bounds what the records of one batch may decompress to, whatever Rules say. A batch that passed
	// Validate is below it, so that reading a stored batch needs no other bound.
	MaxDecompressedBytes = 256 << 20

	// maxPooledScratch is the largest decompression buffer that is kept for the next batch. A rare huge batch must not pin
	// its buffer for the life of the process.
	maxPooledScratch = 8 << 20

	// maxRecordErrors bounds the list of bad records in one Rejection, and so the produce response that carries it.
	maxRecordErrors = 128

	// firstScratch is the smallest decompression buffer, and scratchGrowth the factor from the compressed size with which
	// the first one is guessed.
	firstScratch  = 64 << 10
	scratchGrowth = 4

	// lz4BlockBytes and xerialBlockBytes are the block sizes written. They are Kafka's own.
	lz4BlockBytes    = 64 << 10
	xerialBlockBytes = 32 << 10

	// zstdMaxWindow is the largest window that decoders of other languages accept by default.
	zstdMaxWindow = 128 << 20

	// zstdSlack is the room that decoding one zstd block may take.
	zstdSlack = 128<<10 + 64

	// zstdMaxRatio bounds the buffer that a zstd header may claim ahead of decoding: a block of 4 bytes can give 128 KiB.
	zstdMaxRatio = 32 << 10
)
