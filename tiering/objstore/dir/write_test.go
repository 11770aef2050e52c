// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// TestWriteObject: an object is as it was given, whatever its length, however its bytes come, and whether it is written past the page cache or not.
func TestWriteObject(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{0, 1, alignment, directFrom - 1, directFrom, directFrom + 1, directFrom + alignment - 50, directFrom + alignment, 3*writeBuffer - 1, 5*writeBuffer + 12345} {
		want := make([]byte, size)
		_, _ = random.Read(want)
		for name, body := range map[string]io.Reader{"whole": bytes.NewReader(want), "halves": iotest.HalfReader(bytes.NewReader(want)), "data with the end": iotest.DataErrReader(bytes.NewReader(want))} {
			f, err := os.Create(filepath.Join(t.TempDir(), "object"))
			if err != nil {
				t.Fatal(err)
			}
			if err := writeObject(context.Background(), f, body, int64(size), map[string]string{"a": strings.Repeat("x", 100)}); err != nil {
				t.Fatalf("%d bytes, %s: %v", size, name, err)
			}
			got, err := os.ReadFile(f.Name())
			if err != nil || len(got) < size || !bytes.Equal(got[:size], want) {
				t.Errorf("%d bytes, %s: %d are there, %v", size, name, len(got), err)
			}
			if end, err := readTrailer(f); err != nil || end.size != int64(size) {
				t.Errorf("%d bytes, %s: %+v, %v", size, name, end, err)
			}
			f.Close()
		}
	}
}

// TestDirect: large objects are written past the page cache where the file system can, up to their last, uneven bytes; small ones are not.
func TestDirect(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "object"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := setDirect(f, true); err != nil {
		t.Skipf("%s: the file system of %s has no writes past the page cache: %v", runtime.GOOS, f.Name(), err)
	}
	if _, err := f.Write(make([]byte, alignment+1)[1:]); err == nil {
		t.Skipf("the file system of %s takes every write: whether one goes past the page cache cannot be told", f.Name())
	} else if !refusesDirect(err) {
		t.Errorf("a write of odd memory: %v, which is not taken for a refusal", err)
	}
	if err := setDirect(f, false); err != nil {
		t.Fatal(err)
	}
	w := newWriter(f, directFrom)
	defer w.release()
	if !w.direct {
		t.Errorf("an object of %d bytes is written through the page cache", directFrom)
	}
	small := newWriter(f, directFrom-1)
	defer small.release()
	if small.direct {
		t.Errorf("an object of %d bytes is written past the page cache", directFrom-1)
	}
	if err := w.end(make([]byte, 2*writeBuffer+1)); err != nil || w.direct {
		t.Errorf("the uneven end: %v, direct %v", err, w.direct)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 2*writeBuffer+1 {
		t.Errorf("the file: %+v, %v", info, err)
	}
}

// TestDirectRefused: a write that a file system refuses though it took the flag goes through the page cache.
func TestDirectRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "object"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	odd := make([]byte, writeBuffer+1)[1:] // on no file system may memory be so
	w := writer{f: f, buf: &odd, direct: setDirect(f, true) == nil}
	if err := w.end(make([]byte, writeBuffer)); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != writeBuffer {
		t.Errorf("the file: %+v, %v", info, err)
	}
}
