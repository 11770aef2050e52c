// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// TestFramesOfAllSizes: frames of small batches, of large ones and of more than one write takes are on a real disk what they are in memory.
func TestFramesOfAllSizes(t *testing.T) {
	const logs = 40
	for name, fs := range map[string]vfs.FS{"disk": vfs.Default, "memory": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			dir := filepath.Join(t.TempDir(), "data")
			o := Options{FS: fs, MemTableBytes: 16 << 20}
			d := mustOpen(t, dir, o)
			var want [logs][]byte
			var ends [logs]record.Offset
			var ls [logs]*Log
			open := func() {
				for n := range logs {
					ls[n] = mustLog(t, d, n, nil)
				}
			}
			open()
			for round := range 10 {
				for n, l := range ls {
					for range 1 + rng.IntN(4) {
						size := []int{100, 5 << 10, 20 << 10, vectorBytes, vectorBytes - 1, directBytes, 300 << 10}[rng.IntN(6+round%2)]
						b := makeBatch(ends[n], 0, 1, size+rng.IntN(3), byte(rng.Int()))
						want[n] = append(want[n], b...)
						ends[n]++
						check(t, l.Append(b, -1, nil))
					}
				}
			}
			read := func() {
				t.Helper()
				for n, l := range ls {
					got, err := l.Read(0, ends[n], 1<<30, true, nil)
					if check(t, err); !bytes.Equal(got, want[n]) {
						t.Fatalf("log %d: %d bytes are not the %d that were written", n, len(got), len(want[n]))
					}
				}
			}
			for n, end := range ends {
				for ls[n].DurableEnd() < end {
					time.Sleep(time.Millisecond)
				}
			}
			read()
			if name == "disk" { // a copy replays the frames, whose checksums it looks at
				dir += "-copy"
				check(t, os.CopyFS(dir, os.DirFS(d.dir)))
			}
			check(t, d.Close())
			d = mustOpen(t, dir, o)
			defer d.Close()
			open()
			read()
		})
	}
}

// TestFrameOfManyPieces: a frame of more pieces than one write takes, or of more small bytes than are gathered, has every byte in its place.
func TestFrameOfManyPieces(t *testing.T) {
	for name, size := range map[string]int{"listed": vectorBytes, "gathered": vectorBytes - 1, "both": 0} {
		for kind, fs := range map[string]vfs.FS{"disk": vfs.Default, "memory": vfs.NewMem()} {
			t.Run(name+" "+kind, func(t *testing.T) {
				dir := t.TempDir()
				check(t, fs.MkdirAll(dir, 0o755))
				f, err := fs.Create(filepath.Join(dir, "f"), vfs.WriteCategoryUnspecified)
				check(t, err)
				defer f.Close()
				c := &commit{buffer: make([]byte, 0, gatherBytes), file: &logFile{handle: f}, start: pageBytes}
				w := frameWriter{c: c, at: c.start, buffer: c.buffer[:frameHeaderLen], direct: directBytes}
				if vectored(f) {
					w.direct = vectorBytes
				}
				var want []byte
				for i := range 3 * maxVectors {
					n := size
					if n == 0 {
						n = []int{100, vectorBytes}[i%2]
					}
					b := bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, (n+2)/3)[:n]
					want = append(want, b...)
					check(t, w.add(b))
					if len(c.list) > maxVectors+1 {
						t.Fatalf("%d pieces wait for one write", len(c.list))
					}
				}
				var store [16]byte
				h := frameHeader{file: 1, data: uint32(len(want)), sequence: 9, body: w.sum}
				check(t, w.end(&h, &store))
				got := make([]byte, frameHeaderLen+len(want))
				_, err = f.ReadAt(got, c.start)
				check(t, err)
				if !bytes.Equal(got[frameHeaderLen:], want) {
					t.Fatal("other bytes than those that were added")
				}
				if _, ok, err := parseFrameHeader(got[:frameHeaderLen], &store, 1); err != nil || !ok {
					t.Fatalf("no header: %v", err)
				}
				if crc32.Checksum(want, castagnoli) != w.sum {
					t.Fatal("another checksum")
				}
			})
		}
	}
}

// TestRestOfAList: whatever part of a list was written by one call, the rest goes where it belongs.
func TestRestOfAList(t *testing.T) {
	list := [][]byte{nil, []byte("abc"), []byte("d"), nil, []byte("efgh")}
	want := slices.Concat(list...)
	for done := range len(want) + 1 {
		t.Run(fmt.Sprint(done), func(t *testing.T) {
			f, err := vfs.NewMem().Create("f", vfs.WriteCategoryUnspecified)
			check(t, err)
			_, err = f.WriteAt(append([]byte("__"), want[:done]...), 0)
			check(t, err)
			n, err := writeRest(f, list, 2, done)
			if check(t, err); n != int64(len(want)) {
				t.Fatalf("%d bytes written", n)
			}
			got := make([]byte, len(want))
			_, err = f.ReadAt(got, 2)
			if check(t, err); !bytes.Equal(got, want) {
				t.Fatalf("%q", got)
			}
		})
	}
}
