// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/tiering/objstore"
)

// startCold starts a node with a topic whose partition 0 has one record, in the bucket alone.
func startCold(t *testing.T, partitions int) (*node, *metadata.Topic) {
	t.Helper()
	n := startNode(t, nodeOptions{retries: true})
	topic := n.topic("t", partitions, map[string]string{"segment.ms": "1000", "local.retention.ms": "1000"})
	n.produce(topic, 0, "cold")
	n.await("eviction", func() bool { time.Sleep(time.Second); return n.partition(topic, 0).Marks().Local == 1 })
	return n, topic
}

// TestColdReadsInAnOutage: while the bucket fails, a cold read answers KAFKA_STORAGE_ERROR when the fetch's wait is over, however long the tries go
// on; the log says so now and then; what is on the disk is served as ever, and the data comes once the bucket is back. A store that is slow is no
// reason for an error.
func TestColdReadsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := startCold(t, 2)
		n.produce(topic, 1, "hot")
		c := n.dial()
		fetch := func(wait time.Duration, both bool) []kmsg.FetchResponseTopicPartition {
			req := fetchFor("t", topic.ID, 0, 0, wait)
			if both {
				other := req.Topics[0].Partitions[0]
				other.Partition = 1
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, other)
			}
			return c.do(12, req).(*kmsg.FetchResponse).Topics[0].Partitions
		}

		n.store.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Unavailable})
		for _, wait := range []time.Duration{500 * time.Millisecond, 100 * time.Millisecond} {
			began := time.Now()
			if p := fetch(wait, false)[0]; p.ErrorCode != int16(codeKafkaStorageError) {
				t.Errorf("the bucket is away, after %s: error %d", wait, p.ErrorCode)
			}
			if took := time.Since(began); took > wait+20*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		}
		ps := fetch(500*time.Millisecond, true)
		if ps[0].ErrorCode != int16(codeKafkaStorageError) || ps[1].ErrorCode != 0 || len(contents(t, ps[1].RecordBatches)) != 1 {
			t.Errorf("beside a partition with data: errors %d and %d", ps[0].ErrorCode, ps[1].ErrorCode)
		}
		for began := time.Now(); time.Since(began) < 11*time.Second; time.Sleep(100 * time.Millisecond) {
			fetch(100*time.Millisecond, false)
		}
		if lines := strings.Count(n.log.String(), "the bucket does not answer"); lines != 2 {
			t.Errorf("%d lines of the outage in some 12 s, log:\n%s", lines, n.log)
		}
		for _, part := range []string{"object=", "since=", "error="} {
			if !strings.Contains(n.log.String(), part) {
				t.Errorf("the log does not say %s", part)
			}
		}

		n.store.Calm()
		n.await("the data once the bucket is back", func() bool {
			p := fetch(500*time.Millisecond, false)[0]
			return p.ErrorCode == 0 && len(contents(t, p.RecordBatches)) == 1
		})
	})
}

// TestRefusedColdRead: what the bucket refuses for good is told at once, not when the wait is over, and is not lost when the request looks again at
// what it has.
func TestRefusedColdRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := startCold(t, 1)
		n.store.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Denied})
		c := n.dial()
		var p kmsg.FetchResponseTopicPartition
		d := took(func() {
			p = c.do(12, fetchFor("t", topic.ID, 0, 0, 5*time.Second)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		})
		if p.ErrorCode != int16(codeKafkaStorageError) || d > time.Second {
			t.Errorf("error %d after %s", p.ErrorCode, d)
		}
	})
}

// TestSlowColdRead: a read that is merely late is answered without an error and without data, and comes with a later fetch.
func TestSlowColdRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, topic := startCold(t, 1)
		n.store.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Slow, Delay: 3 * time.Second})
		c := n.dial()
		for i := range 20 {
			p := c.do(12, fetchFor("t", topic.ID, 0, 0, 500*time.Millisecond)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 {
				t.Fatalf("fetch %d: error %d", i, p.ErrorCode)
			}
			if len(contents(t, p.RecordBatches)) == 1 {
				if i < 5 {
					t.Errorf("it came with fetch %d, so nothing was late", i)
				}
				return
			}
		}
		t.Error("the data never came")
	})
}
