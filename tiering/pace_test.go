// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/tiering/objstore"
)

// slowBody counts how many read of it at the same time.
type slowBody struct {
	objstore.Body
	reading, most *atomic.Int32
}

func (b slowBody) Open() (io.ReadCloser, error) {
	r, err := b.Body.Open()
	return slowReader{r, b}, err
}

type slowReader struct {
	io.ReadCloser
	b slowBody
}

func (r slowReader) Read(p []byte) (int, error) {
	n := r.b.reading.Add(1)
	defer r.b.reading.Add(-1)
	r.b.most.Store(max(r.b.most.Load(), n))
	time.Sleep(time.Millisecond)
	return r.ReadCloser.Read(p[:min(len(p), 10)])
}

// TestTurns: uploads read at most as many at a time as there are turns, and each gets its bytes.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reading, most atomic.Int32
		allowed := make(turns, 2)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				r, err := pacedBody{slowBody{objstore.Bytes(make([]byte, 100)), &reading, &most}, allowed}.Open()
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := io.ReadAll(r); err != nil || len(b) != 100 {
					t.Errorf("%d bytes, %v", len(b), err)
				}
			})
		}
		all.Wait()
		if most.Load() != 2 {
			t.Errorf("%d read at the same time, want 2", most.Load())
		}
	})
}
