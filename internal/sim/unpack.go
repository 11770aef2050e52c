// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// unpacker keeps zstd decoders out of the bubbles: the client's own hold a channel and are closed by a finalizer, which runs outside of
// the bubble they were made in.
type unpacker struct{ kgo.Decompressor }

var bubbleFree = unpacker{kgo.DefaultDecompressor()}

var zstdDecoder = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
}()

func (u unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec == kgo.CodecZstd {
		return zstdDecoder.DecodeAll(src, nil)
	}
	return u.Decompressor.Decompress(src, codec)
}
