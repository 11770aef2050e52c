// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/varve/varve/tiering/objstore"
)

// The end of a file, integers little-endian:
//
//	metadata   JSON object of strings
//	trailer    object size u64 | metadata length u32 | CRC-32C of metadata and the three fields around it u32 | format u32 | magic "VARVEOBJ"
const (
	trailerSize   = 8 + 4 + 4 + 4 + 8
	trailerMagic  = "VARVEOBJ"
	trailerFormat = 1
	maxMetadata   = 64 << 10
)

// appendTail appends metadata and trailer.
func appendTail(b []byte, size int64, metadata map[string]string) ([]byte, error) {
	meta, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	b = append(b, meta...)
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(meta)))
	b = binary.LittleEndian.AppendUint32(b, tailCRC(meta, size, trailerFormat))
	b = binary.LittleEndian.AppendUint32(b, trailerFormat)
	return append(b, trailerMagic...), nil
}

func tailCRC(meta []byte, size int64, format uint32) uint32 {
	sum := append([]byte(nil), meta...)
	sum = binary.LittleEndian.AppendUint64(sum, uint64(size))
	sum = binary.LittleEndian.AppendUint32(sum, uint32(len(meta)))
	return objstore.CRC32C(binary.LittleEndian.AppendUint32(sum, format))
}

// tail is what the end of a file says.
type tail struct {
	size       int64
	metaLength int64
	crc        uint32
}

// readTrailer reads the fixed part only, which is all that a ranged read needs. That the parts add up to the file's length
// proves the file whole; D1 says that it always is, a copy made by hand may not be.
func readTrailer(f *os.File) (tail, error) {
	info, err := f.Stat()
	if err != nil {
		return tail{}, err
	}
	if info.Size() < trailerSize {
		return tail{}, fmt.Errorf("%w: file %s has %d bytes, less than a trailer", objstore.ErrCorrupt, f.Name(), info.Size())
	}
	var b [trailerSize]byte
	if _, err := f.ReadAt(b[:], info.Size()-trailerSize); err != nil {
		return tail{}, err
	}
	if string(b[20:]) != trailerMagic {
		return tail{}, fmt.Errorf("%w: file %s does not end in a trailer", objstore.ErrCorrupt, f.Name())
	}
	if format := binary.LittleEndian.Uint32(b[16:]); format != trailerFormat {
		return tail{}, fmt.Errorf("%w: file %s has format %d; this version reads %d", objstore.ErrCorrupt, f.Name(), format, trailerFormat)
	}
	t := tail{size: int64(binary.LittleEndian.Uint64(b[:])), metaLength: int64(binary.LittleEndian.Uint32(b[8:])), crc: binary.LittleEndian.Uint32(b[12:])}
	if t.size < 0 || t.metaLength > maxMetadata || t.size != info.Size()-t.metaLength-trailerSize {
		return tail{}, fmt.Errorf("%w: file %s of %d bytes should hold %d and %d of metadata", objstore.ErrCorrupt, f.Name(), info.Size(), t.size, t.metaLength)
	}
	return t, nil
}

// readMetadata reads and verifies the metadata.
func readMetadata(f *os.File, t tail) (map[string]string, error) {
	meta := make([]byte, t.metaLength)
	if _, err := f.ReadAt(meta, t.size); err != nil && err != io.EOF {
		return nil, err
	}
	if got := tailCRC(meta, t.size, trailerFormat); got != t.crc {
		return nil, fmt.Errorf("%w: file %s: metadata has checksum %08x, not %08x", objstore.ErrCorrupt, f.Name(), got, t.crc)
	}
	var m map[string]string
	if err := json.Unmarshal(meta, &m); err != nil {
		return nil, fmt.Errorf("%w: file %s: metadata: %w", objstore.ErrCorrupt, f.Name(), err)
	}
	return m, nil
}
