// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger is what was acknowledged: which line lies at each offset of each partition.
type ledger struct {
	in *input
	mu sync.Mutex
	// at[p][o] is the line's number + 1, negative when it went without a key, 0 when nothing was acknowledged there.
	at     [][]int32
	acked  int
	broken []string // acknowledgements that cannot be
}

func newLedger(in *input, partitions int) *ledger {
	return &ledger{in: in, at: make([][]int32, partitions)}
}

func (l *ledger) ack(partition int32, offset int64, number int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.at[partition]
	for int64(len(*p)) <= offset {
		*p = append(*p, 0)
	}
	if (*p)[offset] != 0 {
		l.broken = append(l.broken, fmt.Sprintf("offset %d of partition %d was acknowledged twice", offset, partition))
	}
	(*p)[offset] = number
	l.acked++
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// line returns what lies at an offset: the line, and its key or nil.
func (l *ledger) line(partition int32, offset int64) (*line, []byte) {
	n := l.at[partition][offset]
	if n < 0 {
		return &l.in.lines[-n-1], nil
	}
	return &l.in.lines[n-1], l.in.lines[n-1].key
}

// check demands that every offset up to the last was acknowledged once (A2: nothing else writes).
func (l *ledger) check(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.broken {
		t.Error(b)
	}
	for p, at := range l.at {
		for o, n := range at {
			if n == 0 {
				t.Fatalf("%s-%d: offset %d was acknowledged to nobody, though a later one was", l.in.topic, p, o)
			}
		}
	}
}

// produce sends the lines in order and returns once all are acknowledged.
func (l *ledger) produce(ctx context.Context, c *kgo.Client, order []int32) error {
	var (
		mu     sync.Mutex
		failed error
	)
	for _, i := range order {
		in := &l.in.lines[i]
		r := &kgo.Record{Topic: l.in.topic, Key: in.key, Value: in.text, Timestamp: time.UnixMilli(in.millis)}
		c.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				failed = fmt.Errorf("produce to %s: %w", r.Topic, err)
				mu.Unlock()
				return
			}
			l.ack(r.Partition, r.Offset, i+1)
		})
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return failed
}

// entry is a record in the form that is hashed, for franz-go and kcat alike.
func entry(buf []byte, offset, millis int64, text []byte) []byte {
	buf = strconv.AppendInt(buf[:0], offset, 10)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, millis, 10)
	buf = append(buf, ' ')
	buf = append(buf, text...)
	return append(buf, '\n')
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// hashes are the acknowledged records of each partition, hashed.
func (l *ledger) hashes() []string {
	var out []string
	var buf []byte
	for p := range l.at {
		h := sha256.New()
		for o := range l.at[p] {
			in, _ := l.line(int32(p), int64(o))
			buf = entry(buf, int64(o), in.millis, in.text)
			h.Write(buf)
		}
		out = append(out, sum(h))
	}
	return out
}

// readBack reads the whole topic with franz-go and compares each record with what was acknowledged (A1, A2).
func (l *ledger) readBack(t testing.TB, bootstrap string) (records int, hashes []string) {
	t.Helper()
	from := map[int32]kgo.Offset{}
	sums := make([]hash.Hash, len(l.at))
	next := make([]int64, len(l.at))
	missing := 0
	for p := range l.at {
		from[int32(p)], sums[p] = kgo.NewOffset().At(0), sha256.New()
		missing += len(l.at[p])
	}
	c := client(t, bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.in.topic: from}), kgo.FetchMaxWait(time.Second))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var buf []byte
	for records < missing {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %s back, after %d of %d records: %v", l.in.topic, records, missing, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if t.Failed() {
				return
			}
			if r.Offset != next[r.Partition] || r.Offset >= int64(len(l.at[r.Partition])) {
				t.Errorf("%s-%d: read offset %d, expected %d of %d", r.Topic, r.Partition, r.Offset, next[r.Partition], len(l.at[r.Partition]))
				return
			}
			in, key := l.line(r.Partition, r.Offset)
			if !bytes.Equal(in.text, r.Value) || !bytes.Equal(key, r.Key) || in.millis != r.Timestamp.UnixMilli() {
				t.Errorf("%s-%d offset %d: read key %q, time %d, %q; acknowledged was key %q, time %d, %q",
					r.Topic, r.Partition, r.Offset, r.Key, r.Timestamp.UnixMilli(), r.Value, key, in.millis, in.text)
			}
			buf = entry(buf, r.Offset, r.Timestamp.UnixMilli(), r.Value)
			sums[r.Partition].Write(buf)
			next[r.Partition]++
			records++
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, h := range sums {
		hashes = append(hashes, sum(h))
	}
	return records, hashes
}

// times answers time lookups from what was acknowledged.
type times struct {
	millis [][]int64 // by offset
	// highest[p][o] is the largest time at or below offset o. The first offset whose time is at least t is the first at which
	// highest is: that record is what raised it there.
	highest [][]int64
}

func (l *ledger) times() *times {
	tt := &times{}
	for p := range l.at {
		millis, highest := make([]int64, len(l.at[p])), make([]int64, len(l.at[p]))
		for o := range l.at[p] {
			in, _ := l.line(int32(p), int64(o))
			millis[o], highest[o] = in.millis, in.millis
			if o > 0 {
				highest[o] = max(highest[o-1], in.millis)
			}
		}
		tt.millis, tt.highest = append(tt.millis, millis), append(tt.highest, highest)
	}
	return tt
}

// first is the first offset at or after t, with its time; -1 and -1 when there is none.
func (tt *times) first(partition int, t int64) (offset, millis int64) {
	o := sort.Search(len(tt.highest[partition]), func(i int) bool { return tt.highest[partition][i] >= t })
	if o == len(tt.highest[partition]) {
		return -1, -1
	}
	return int64(o), tt.millis[partition][o]
}
