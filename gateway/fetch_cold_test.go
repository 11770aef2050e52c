// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestColdBatchBesideBusyPartition: a batch in the bucket that is larger than the limits still comes when another partition of the
// request always has data: what stands first in the queue gets its first batch whole, as in the hot log.
func TestColdBatchBesideBusyPartition(t *testing.T) {
	for name, change := range map[string]func(*kmsg.FetchRequest){
		"partition limit": func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].PartitionMaxBytes = 100 << 10 },
		"request limit":   func(r *kmsg.FetchRequest) { r.MaxBytes = 100 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{})
				topic := n.topic("t", 2, map[string]string{"segment.ms": "1000", "local.retention.ms": "1000"})
				n.produce(topic, 0, string(make([]byte, 300<<10)))
				n.await("eviction", func() bool { time.Sleep(time.Second); return n.partition(topic, 0).Marks().Local == 1 })
				for range 10 {
					n.produce(topic, 1, string(make([]byte, 60<<10)))
				}
				c := n.dial()
				for range 5 {
					req := fetchFor("t", topic.ID, 0, 0, 500*time.Millisecond)
					busy := req.Topics[0].Partitions[0]
					busy.Partition = 1
					req.Topics[0].Partitions = append(req.Topics[0].Partitions, busy)
					change(req)
					for _, p := range c.do(12, req).(*kmsg.FetchResponse).Topics[0].Partitions {
						if p.ErrorCode != 0 {
							t.Fatalf("partition %d: error %d", p.Partition, p.ErrorCode)
						}
						if p.Partition == 0 && len(contents(t, p.RecordBatches)) == 1 {
							return
						}
					}
				}
				t.Error("the batch in the bucket never came")
			})
		})
	}
}
