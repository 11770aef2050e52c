// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/internal/memnet"
)

// TestFranzGo produces and consumes with a real client, idempotently, over a network that delays and sometimes cuts: every record
// comes once, in order per partition.
func TestFranzGo(t *testing.T) {
	for _, f := range []memnet.Faults{
		{},
		{DelayMin: time.Millisecond, DelayMax: 20 * time.Millisecond, Cut: 0.01, LoseReply: 0.02},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const partitions, records = 3, 900
				n := startNode(t, nodeOptions{})
				n.topic("t", partitions, nil)
				n.net.SetFaults(f)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				client := func(host string, o ...kgo.Opt) *kgo.Client {
					c, err := kgo.NewClient(append(o, kgo.SeedBrokers(testAddress), kgo.Dialer(n.net.DialFunc(host)), kgo.MetadataMinAge(100*time.Millisecond))...)
					check(t, err)
					return c
				}
				p := client("producer", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
				for i := range records {
					p.Produce(ctx, &kgo.Record{Topic: "t", Partition: int32(i % partitions), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
						if err != nil {
							t.Errorf("produce: %v", err)
						}
					})
					if i%50 == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				check(t, p.Flush(ctx))
				p.Close()
				c := client("consumer", kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
				defer c.Close()
				next, got := map[int32]int{0: 0, 1: 1, 2: 2}, 0
				for got < records && ctx.Err() == nil {
					c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
						if want := fmt.Sprint(next[r.Partition]); string(r.Value) != want {
							t.Fatalf("partition %d offset %d: got %s, want %s", r.Partition, r.Offset, r.Value, want)
						}
						next[r.Partition] += partitions
						got++
					})
				}
				if got != records {
					t.Errorf("%d records of %d came", got, records)
				}
			})
		})
	}
}
