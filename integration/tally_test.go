// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// place is where a record lies.
type place struct {
	partition int32
	offset    int64
}

// tally is what producers of unique values were told: which value lies where, and how many sends failed.
type tally struct {
	topic string
	mu    sync.Mutex
	at    map[place]string
	// sent counts values, failed those of which the producer was told that they may not be stored.
	sent, failed int
	broken       []string
}

func newTally(topic string) *tally { return &tally{topic: topic, at: map[place]string{}} }

func (a *tally) done(r *kgo.Record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed++
		return
	}
	at := place{r.Partition, r.Offset}
	if there, ok := a.at[at]; ok {
		a.broken = append(a.broken, fmt.Sprintf("%s-%d offset %d was acknowledged for %q and for %q", a.topic, at.partition, at.offset, there, r.Value))
	}
	a.at[at] = string(r.Value)
}

// counts are the values sent so far, those acknowledged and those that failed.
func (a *tally) counts() (sent, acked, failed int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent, len(a.at), a.failed
}

// run sends values through a client until ctx ends and waits for the outcome of each. pause is the time between two of them.
func (a *tally) run(ctx context.Context, c *kgo.Client, name string, pause time.Duration) error {
	for i := 0; ctx.Err() == nil; i++ {
		a.mu.Lock()
		a.sent++
		a.mu.Unlock()
		c.Produce(context.Background(), &kgo.Record{Topic: a.topic, Value: fmt.Appendf(nil, "%s %d %s", name, i, filler[:i%len(filler)])}, a.done)
		time.Sleep(pause)
	}
	flush, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Flush(flush)
}

var filler = fmt.Sprintf("%0200d", 0)

// verify reads the topic from its log start and compares it with what was acknowledged: dense offsets (A2), no value twice,
// every acknowledged value at or above the log start in its place (A1). exact: nothing else may be there.
func (a *tally) verify(t testing.TB, bootstrap string, parts int, exact bool) (records int, start []int64) {
	t.Helper()
	c := client(t, bootstrap)
	start, end := boundary(t, c, a.topic, parts, earliest), boundary(t, c, a.topic, parts, latest)
	from, missing := map[int32]kgo.Offset{}, 0
	next := append([]int64{}, start...)
	for p := range parts {
		from[int32(p)] = kgo.NewOffset().At(start[p])
		missing += int(end[p] - start[p])
	}
	reader := client(t, bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.topic: from}), kgo.FetchMaxWait(time.Second))
	defer reader.Close()
	defer c.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.broken {
		t.Error(b)
	}
	seen := map[string]place{}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for records < missing && !t.Failed() {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %s, after %d of %d records: %v", a.topic, records, missing, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at := place{r.Partition, r.Offset}
			if r.Offset != next[r.Partition] {
				t.Errorf("%s-%d: offset %d follows %d", a.topic, r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition] = r.Offset + 1
			if other, twice := seen[string(r.Value)]; twice {
				t.Errorf("%s: %q lies at %v and at %v", a.topic, r.Value, other, at)
			}
			seen[string(r.Value)] = at
			if want, ok := a.at[at]; ok && want != string(r.Value) || !ok && exact {
				t.Errorf("%s-%d offset %d holds %q, acknowledged there was %q", a.topic, r.Partition, r.Offset, r.Value, want)
			}
			records++
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	for at, v := range a.at {
		if at.offset >= start[at.partition] && at.offset >= end[at.partition] {
			t.Fatalf("%s-%d ends at %d: %q, acknowledged at %d, is lost", a.topic, at.partition, end[at.partition], v, at.offset)
		}
	}
	return records, start
}
