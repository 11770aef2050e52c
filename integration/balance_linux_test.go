// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/integration/harness"
)

// TestLoadBalance: three nodes take a load that follows Zipf's law over 60 partitions. After two minutes none takes in more than 1.25 of the mean,
// each partition has moved once at most, and from then on nothing moves.
func TestLoadBalance(t *testing.T) {
	if !harness.Long() {
		t.Skip("needs more than three minutes of load; VARVE_LONG=1 runs it, and metadata/controller's TestZipf does without nodes")
	}
	t.Parallel()
	const (
		exponent = 1.1
		size     = 8 << 10
		every    = 2 * time.Millisecond // 4 MiB/s
		first    = 20 * time.Second
		settles  = 2 * time.Minute
		steady   = time.Minute
	)
	m := &many{t: t, etcd: harness.StartEtcd(t), partitions: 60, topics: []string{"zipf"}}
	m.nodes = threeNodes(t, m.etcd, harness.TempDir(t, "bucket"))
	c := m.client()
	adm := kadm.NewClient(c)
	replicated(t, c, "zipf", m.partitions, nil)

	// upTo are the sums of the partitions' shares, in a random order.
	upTo, sum := make([]float64, m.partitions), 0.0
	for i, rank := range rand.Perm(int(m.partitions)) {
		sum += math.Pow(float64(rank+1), -exponent)
		upTo[i] = sum
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for value := make([]byte, size); ctx.Err() == nil; <-tick.C {
			at, p := rand.Float64()*sum, int32(0)
			for upTo[p] < at {
				p++
			}
			c.Produce(context.Background(), &kgo.Record{Topic: "zipf", Partition: p, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	}()
	defer func() {
		stop()
		<-ended
		if err := c.Flush(within(t, patience)); err != nil {
			t.Error(err)
		}
	}()

	leader, moves, late := map[int32]int32{}, map[int32]int{}, 0
	watch := func(d time.Duration, settled bool) {
		for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
			answer, err := adm.Metadata(within(t, patience), "zipf")
			if err != nil {
				t.Fatal(err)
			}
			answer.Topics.EachPartition(func(p kadm.PartitionDetail) {
				if known, ok := leader[p.Partition]; ok && known != p.Leader && p.Leader >= 0 {
					moves[p.Partition]++
					if settled {
						late++
					}
				}
				leader[p.Partition] = p.Leader
			})
		}
	}
	in := func() (bytes []float64) {
		for _, n := range m.nodes {
			bytes = append(bytes, harness.Sum(n.Metrics(), "kafka_server_brokertopicmetrics_bytesin_total", `topic="zipf"`))
		}
		return bytes
	}
	began := in()
	watch(first, false)
	soon := skew(began, in())
	watch(settles-first, false)
	before := in()
	watch(steady, true)
	after := skew(before, in())
	most := 0
	for _, n := range moves {
		most = max(most, n)
	}
	t.Logf("most to mean of bytes in: %.2f in the first %s, %.2f in the third minute; %d partitions moved, none more than %d times, %d of them in the third minute", soon, first, after, len(moves), most, late)
	if after > 1.25 || most > 1 || late > 0 {
		t.Error("more than 1.25 of the mean, or a partition moved twice, or one moved under a steady load")
	}
}

// skew is the most by the mean of what nodes took in.
func skew(before, after []float64) float64 {
	most, sum := 0.0, 0.0
	for i := range after {
		most = max(most, after[i]-before[i])
		sum += after[i] - before[i]
	}
	return most / (sum / float64(len(after)))
}
