// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"io"
	"runtime"

	"github.com/varve/varve/tiering/objstore"
)

// turns bounds how many uploads read and check data at the same time to half of the processors. That is all processor time and has no
// hurry, while whoever waits for an acknowledgement does: with as many uploads as processors each record would wait for the scheduler.
// Nobody holds a turn while it waits for the bucket.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// pacedBody takes a turn for each read.
type pacedBody struct {
	objstore.Body
	turns turns
}

func (b pacedBody) Open() (io.ReadCloser, error) {
	r, err := b.Body.Open()
	if err != nil {
		return nil, err
	}
	return pacedReader{r, b.turns}, nil
}

type pacedReader struct {
	io.ReadCloser
	turns turns
}

func (r pacedReader) Read(p []byte) (int, error) {
	r.turns <- struct{}{}
	defer func() { <-r.turns }()
	return r.ReadCloser.Read(p)
}
