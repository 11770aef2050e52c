// SPDX-License-Identifier: Apache-2.0

package objstoretest

import (
	"encoding/binary"
	"io"
	"math/rand/v2"

	"github.com/varve/varve/tiering/objstore"
)

// Random returns a body of random bytes made on the fly: the same for the same seed.
func Random(seed uint64, size int64) objstore.Body { return randomBody{seed: seed, size: size} }

type randomBody struct {
	seed uint64
	size int64
}

func (b randomBody) Size() int64 { return b.size }

func (b randomBody) Open() (io.ReadCloser, error) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], b.seed)
	return io.NopCloser(io.LimitReader(rand.NewChaCha8(key), b.size)), nil
}

// Content returns all bytes of a body.
func Content(b objstore.Body) []byte {
	r, err := b.Open()
	if err != nil {
		panic(err) // bodies of this package open always
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return all
}

// claim is a body whose promised size is not what it yields.
type claim struct {
	objstore.Body
	size int64
}

func (c claim) Size() int64 { return c.size }
