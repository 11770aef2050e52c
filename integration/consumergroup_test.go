// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/integration/harness"
)

// verifiable is a consumer of Apache Kafka's that tells what it does, one line of JSON each.
type verifiable struct{ *harness.Process }

type verifiableEvent struct {
	Name       string `json:"name"`
	Count      int    `json:"count"`
	Partitions []struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
	} `json:"partitions"`
	Success bool `json:"success"`
}

func startVerifiable(t testing.TB, bootstrap, topic, group, protocol string) verifiable {
	t.Helper()
	return verifiable{harness.KafkaTool(t, "verifiable-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
		"--group-protocol", protocol, "--reset-policy", "earliest")}
}

func (v verifiable) events() (out []verifiableEvent) {
	for line := range strings.Lines(v.Log()) {
		var e verifiableEvent
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &e) == nil {
			out = append(out, e)
		}
	}
	return out
}

func (v verifiable) consumed() (n int) {
	for _, e := range v.events() {
		if e.Name == "records_consumed" {
			n += e.Count
		}
	}
	return n
}

// holds are the partitions that it has been given and not been asked back.
func (v verifiable) holds() []int32 {
	has := map[int32]bool{}
	for _, e := range v.events() {
		for _, p := range e.Partitions {
			switch e.Name {
			case "partitions_assigned":
				has[p.Partition] = true
			case "partitions_revoked":
				delete(has, p.Partition)
			}
		}
	}
	var list []int32
	for p := range has {
		list = append(list, p)
	}
	return list
}

// member is a franz-go consumer of a group.
type member struct {
	*kgo.Client
	mu   sync.Mutex
	has  map[int32]bool
	read int
	seen map[place]bool
}

func startMember(t testing.TB, bootstrap, topic, group string, opts ...kgo.Opt) *member {
	t.Helper()
	m := &member{has: map[int32]bool{}, seen: map[place]bool{}}
	hold := func(list []int32, mine bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range list {
			if mine {
				m.has[p] = true
			} else {
				delete(m.has, p)
			}
		}
	}
	m.Client = client(t, bootstrap, append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, a map[string][]int32) { hold(a[topic], true) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, a map[string][]int32) {
			_ = cl.CommitUncommittedOffsets(ctx)
			hold(a[topic], false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, a map[string][]int32) { hold(a[topic], false) }),
	}, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetched := m.PollFetches(ctx)
			m.mu.Lock()
			m.read += fetched.NumRecords()
			fetched.EachRecord(func(r *kgo.Record) { m.seen[place{r.Partition, r.Offset}] = true })
			m.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

func (m *member) consumed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read
}

func (m *member) hasRead(partition int32, offset int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[place{partition, offset}]
}

func (m *member) holds() (list []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.has {
		list = append(list, p)
	}
	return list
}

// groupMember is a consumer of any kind.
type groupMember interface {
	consumed() int
	holds() []int32
}

// sharing tells whether each of the members has some of the partitions, and all together each once.
func sharing(partitions int, members ...interface{ holds() []int32 }) bool {
	var all []int32
	for _, m := range members {
		h := m.holds()
		if len(h) == 0 {
			return false
		}
		all = append(all, h...)
	}
	slices.Sort(all)
	return len(all) == partitions && len(slices.Compact(all)) == partitions
}

func consumedBy(members ...groupMember) (n int) {
	for _, m := range members {
		n += m.consumed()
	}
	return n
}

// fill produces so many records over all partitions.
func fill(t testing.TB, c *kgo.Client, topic string, partitions, count int) {
	t.Helper()
	for i := range count {
		c.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := c.Flush(within(t, patience)); err != nil {
		t.Fatal(err)
	}
}

// quickGroups are settings under which consumer groups move within a second.
var quickGroups = []string{
	"group.consumer.min.heartbeat.interval.ms=100", "group.consumer.heartbeat.interval.ms=300", "group.consumer.min.session.timeout.ms=1000",
	"group.consumer.assignment.interval.ms=0", "group.initial.rebalance.delay.ms=0",
}

// TestConsumerGroupClients: consumers of the new protocol, Apache Kafka's own and franz-go's, are one group: they share the partitions, read each
// record once through all that come and leave, and survive the restart of their coordinator.
func TestConsumerGroupClients(t *testing.T) {
	harness.KafkaScript(t)
	const partitions = 6
	node := harness.StartNode(t, harness.NodeConfig{
		Etcd: harness.StartEtcd(t).URL(), Bucket: "file://" + harness.TempDir(t, "bucket"), Set: append([]string{"auto.create.topics.enable=false"}, quickGroups...),
	})
	c := client(t, node.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, c, "t", partitions, nil)
	fill(t, c, "t", partitions, 600)
	a := startVerifiable(t, node.Bootstrap(), "t", "g", "consumer")
	eventually(t, "the first to read everything", func() bool { return a.consumed() == 600 && len(a.holds()) == partitions })
	b := startVerifiable(t, node.Bootstrap(), "t", "g", "consumer")
	m := startMember(t, node.Bootstrap(), "t", "g", kgo.ServerSideBalancer())
	eventually(t, "three to share", func() bool { return sharing(partitions, a, b, m) })
	fill(t, c, "t", partitions, 600)
	eventually(t, "three to read everything", func() bool { return consumedBy(a, b, m) == 1200 })
	// They may share while one of them is still on its way to another share.
	stable := func() bool { return describedConsumers(t, c, "g").State == "Stable" }
	eventually(t, "the group to be stable", stable)
	if g := describedConsumers(t, c, "g"); g.AssignorName != "uniform" || len(g.Members) != 3 {
		t.Errorf("%+v", g)
	}
	if code := b.Terminate(); code == 0 || code == 143 { // it commits and leaves
		eventually(t, "two to share", func() bool { return sharing(partitions, a, m) })
	} else {
		t.Fatalf("the consumer ended with %d", code)
	}
	node.Kill()
	node.Start()
	fill(t, c, "t", partitions, 300)
	eventually(t, "two to read everything", func() bool { return consumedBy(a, b, m) >= 1500 })
	if n := consumedBy(a, b, m); n != 1500 {
		t.Errorf("%d of 1500 records were read", n)
	}
	eventually(t, "the group to be stable again", stable)
	out := harness.KafkaTool(t, "consumer-groups", "--bootstrap-server", node.Bootstrap(), "--describe", "--group", "g", "--state")
	if code := out.Wait(patience); code != 0 || !strings.Contains(out.Log(), "Stable") {
		t.Errorf("kafka-consumer-groups: %d: %s", code, out.Log())
	}
}

// TestConsumerGroupMoves: the consumers of a classic group are replaced by ones of the new protocol and back, one at a time, and the group goes on.
func TestConsumerGroupMoves(t *testing.T) {
	harness.KafkaScript(t)
	const partitions = 6
	node := harness.StartNode(t, harness.NodeConfig{
		Etcd: harness.StartEtcd(t).URL(), Bucket: "file://" + harness.TempDir(t, "bucket"), Set: append([]string{"auto.create.topics.enable=false"}, quickGroups...),
	})
	c := client(t, node.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, c, "t", partitions, nil)
	read := 0
	more := func(members ...groupMember) {
		t.Helper()
		fill(t, c, "t", partitions, 120)
		read += 120
		eventually(t, fmt.Sprintf("%d records to be read", read), func() bool { return consumedBy(members...) >= read })
	}
	a := startVerifiable(t, node.Bootstrap(), "t", "g", "classic")
	b := startVerifiable(t, node.Bootstrap(), "t", "g", "classic")
	eventually(t, "two classic ones to share", func() bool { return sharing(partitions, a, b) })
	more(a, b)
	d := startVerifiable(t, node.Bootstrap(), "t", "g", "consumer")
	eventually(t, "three to share", func() bool { return sharing(partitions, a, b, d) })
	more(a, b, d)
	if g := describedConsumers(t, c, "g"); len(g.Members) != 3 {
		t.Errorf("%+v", g)
	}
	a.Terminate()
	eventually(t, "one of each kind to share", func() bool { return sharing(partitions, b, d) })
	more(a, b, d)
	d.Terminate()
	eventually(t, "the classic one to have all", func() bool { return sharing(partitions, b) })
	more(a, b, d)
	groups, err := kadm.NewClient(c).ListGroups(within(t, patience))
	if err != nil || groups["g"].GroupType != "classic" {
		t.Errorf("%+v, %v", groups["g"], err)
	}
}

func describedConsumers(t testing.TB, c *kgo.Client, id string) kadm.DescribedConsumerGroup {
	t.Helper()
	groups, err := kadm.NewClient(c).DescribeConsumerGroups(within(t, patience), id)
	if err != nil || groups[id].Err != nil {
		t.Fatalf("describing group %s: %v, %v", id, err, groups[id].Err)
	}
	return groups[id]
}
