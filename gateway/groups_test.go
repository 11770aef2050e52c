// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// coordinating waits until the node coordinates every shard.
func (n *node) coordinating() *node {
	n.t.Helper()
	n.await("the shards to be loaded", func() bool {
		shards, err := n.server.groups.all()
		return err == nil && len(shards) > 0 && len(shards) == int(n.meta.Image().Shards())
	})
	return n
}

// kafka is a franz-go client of the node.
func (n *node) kafka(o ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(testAddress), kgo.Dialer(n.net.DialFunc("client")), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, o...)...)
	check(n.t, err)
	n.t.Cleanup(c.Close)
	return c
}

// fill puts n records with the values first, first+1, … into a topic.
func (n *node) fill(topic string, partitions int, first, count int) {
	n.t.Helper()
	c := n.kafka(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := first; i < first+count; i++ {
		c.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				n.t.Errorf("produce: %v", err)
			}
		})
	}
	check(n.t, c.Flush(context.Background()))
	c.Close()
}

// groupReader is a member of a group that keeps what it read.
type groupReader struct {
	*kgo.Client
	stop context.CancelFunc
	done chan struct{}

	mu struct {
		sync.Mutex
		seen     map[string]int
		assigned map[int32]bool
	}
}

func (n *node) consumer(topic, id string, o ...kgo.Opt) *groupReader {
	n.t.Helper()
	c := &groupReader{done: make(chan struct{})}
	c.mu.seen, c.mu.assigned = map[string]int{}, map[int32]bool{}
	c.Client = n.kafka(append([]kgo.Opt{
		kgo.ConsumerGroup(id), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(3 * time.Second),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.AutoCommitInterval(100 * time.Millisecond), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { c.assign(m[topic], true) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
			if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				n.t.Logf("commit at revocation: %v", err)
			}
			c.assign(m[topic], false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { c.assign(m[topic], false) }),
	}, o...)...)
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = func() { cancel(); <-c.done }
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				c.mu.Lock()
				c.mu.seen[string(r.Value)]++
				c.mu.Unlock()
			})
		}
	}()
	n.t.Cleanup(c.stop)
	return c
}

func (c *groupReader) assign(partitions []int32, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range partitions {
		if mine {
			c.mu.assigned[p] = true
		} else {
			delete(c.mu.assigned, p)
		}
	}
}

func (c *groupReader) holds() []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.mu.assigned))
}

// seenOf counts how often each value was read by any of them.
func seenOf(consumers ...*groupReader) map[string]int {
	all := map[string]int{}
	for _, c := range consumers {
		c.mu.Lock()
		for v, n := range c.mu.seen {
			all[v] += n
		}
		c.mu.Unlock()
	}
	return all
}

// shared tells whether the consumers hold all partitions, each once.
func shared(partitions int, consumers ...*groupReader) bool {
	var all []int32
	for _, c := range consumers {
		h := c.holds()
		if len(h) == 0 {
			return false
		}
		all = append(all, h...)
	}
	slices.Sort(all)
	return len(all) == partitions && len(slices.Compact(all)) == partitions
}

// awaitLong is await for what takes rebalances and sessions.
func (n *node) awaitLong(what string, cond func() bool) {
	n.t.Helper()
	for range 3000 {
		if cond() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	n.t.Fatalf("waited in vain for %s; log:\n%s", what, n.log)
}

// impatient are the configs of a node whose groups rebalance quickly. Tests with group consumers run in real time: the client holds a
// mutex while it joins, which stops a bubble's clock.
var impatient = map[string]string{
	"group.initial.rebalance.delay.ms": "100", "group.min.session.timeout.ms": "500", "offsets.topic.num.partitions": "5",
}

// TestGroupConsumers: consumers of a group share the partitions, through members that come, leave and die, and every record is read.
// Nobody reads one twice as long as everybody leaves in good order.
func TestGroupConsumers(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	} {
		t.Run(name, func(t *testing.T) {
			const partitions = 6
			n := startNode(t, nodeOptions{static: impatient}).coordinating()
			n.topic("t", partitions, nil)
			n.fill("t", partitions, 0, 300)
			a := n.consumer("t", "g", opts...)
			n.awaitLong("one consumer to read everything", func() bool { return len(seenOf(a)) == 300 })
			b := n.consumer("t", "g", opts...)
			n.awaitLong("two consumers to share", func() bool { return shared(partitions, a, b) })
			n.fill("t", partitions, 300, 300)
			n.awaitLong("two consumers to read everything", func() bool { return len(seenOf(a, b)) == 600 })
			for v, times := range seenOf(a, b) {
				if times != 1 {
					t.Errorf("record %s was read %d times", v, times)
				}
			}
			// One leaves: the other takes over where it was.
			check(t, b.CommitUncommittedOffsets(context.Background()))
			b.stop()
			b.Close()
			n.awaitLong("the other to take over", func() bool { return shared(partitions, a) })
			n.fill("t", partitions, 600, 60)
			n.awaitLong("the rest", func() bool { return len(seenOf(a, b)) == 660 })
			if got := seenOf(a, b); got["0"] != 1 || got["659"] != 1 {
				t.Errorf("records read twice: %v, %v", got["0"], got["659"])
			}
		})
	}
}

// TestCoordinatorFailover: the node loses its registration, and with it every shard, while a group consumes: the next term takes
// the generation up, no commit is lost and everything is read.
func TestCoordinatorFailover(t *testing.T) {
	const partitions = 4
	n := startNode(t, nodeOptions{static: impatient}).coordinating()
	n.topic("t", partitions, nil)
	n.fill("t", partitions, 0, 100)
	a, b := n.consumer("t", "g"), n.consumer("t", "g")
	n.awaitLong("both to read everything", func() bool { return len(seenOf(a, b)) == 100 && shared(partitions, a, b) })
	before, err := n.server.describeGroup(context.Background(), "g")
	if err != nil || before.State != group.Stable {
		t.Fatalf("%+v, %v", before, err)
	}
	for range 3 {
		session := n.meta.Session()
		check(t, session.Close(context.Background()))
		n.awaitLong("the node to register anew", func() bool { x := n.meta.Session(); return x != nil && x != session && x.Alive() })
		n.coordinating()
	}
	n.fill("t", partitions, 100, 100)
	n.awaitLong("the rest", func() bool { return len(seenOf(a, b)) == 200 })
	after, err := n.server.describeGroup(context.Background(), "g")
	if err != nil || after.State != group.Stable || after.Generation != before.Generation || len(after.Members) != 2 {
		t.Errorf("after failover: %+v, %v; before %+v", after, err, before)
	}
	for v, times := range seenOf(a, b) {
		if times != 1 {
			t.Errorf("record %s was read %d times", v, times)
		}
	}
}

// TestStaticMember: a static member that restarts within its session gets its partitions back without a rebalance.
func TestStaticMember(t *testing.T) {
	const partitions = 4
	n := startNode(t, nodeOptions{static: impatient}).coordinating()
	n.topic("t", partitions, nil)
	static := func(id string) *groupReader { return n.consumer("t", "g", kgo.InstanceID(id)) }
	a, b := static("A"), static("B")
	n.awaitLong("both to share", func() bool { return shared(partitions, a, b) })
	before, err := n.server.describeGroup(context.Background(), "g")
	check(t, err)
	held := b.holds()
	b.stop()
	b.Close() // static members do not leave
	b = static("B")
	n.awaitLong("it to be back", func() bool { return slices.Equal(b.holds(), held) })
	after, err := n.server.describeGroup(context.Background(), "g")
	if err != nil || after.Generation != before.Generation {
		t.Errorf("generation %d after %d, %v", after.Generation, before.Generation, err)
	}
	a.stop()
	a.Close()
	n.awaitLong("the other to take over when the session ends", func() bool { return shared(partitions, b) })
}

// TestManyCommits: commits of many groups of one shard share transactions, the last one of each partition wins, and what was
// acknowledged is there.
func TestManyCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		topic := n.topic("t", 200, nil)
		const groups, rounds = 60, 20
		var wg sync.WaitGroup
		for g := range groups {
			wg.Go(func() {
				id := fmt.Sprint("g", g)
				for i := range rounds {
					var edits []chunkEdit
					for p := int32(0); p < 200; p += 45 {
						edits = append(edits, chunkEdit{id: metadata.ChunkOf(topic.ID, p), set: []metadata.CommittedOffset{{Partition: p, Offset: record.Offset(i), LeaderEpoch: record.Epoch(i), Committed: metadata.MillisOf(time.Now())}}})
					}
					if err := n.server.commitOffsets(context.Background(), id, group.Committer{Generation: group.NoGeneration}, edits); err != nil {
						t.Errorf("group %s: %v", id, err)
					}
				}
			})
		}
		wg.Wait()
		for g := range groups {
			found, err := n.server.readOffsets(context.Background(), fmt.Sprint("g", g), nil)
			check(t, err)
			if list := found[topic.ID]; len(list) != 5 || list[4].LeaderEpoch != rounds-1 || list[0].LeaderEpoch != rounds-1 {
				t.Errorf("group %d: %+v", g, list)
			}
		}
		// Everything again from the store.
		for id, e := range reload(t, n).groups {
			if len(e.chunks) != 4 {
				t.Errorf("group %s has %d keys", id, len(e.chunks))
			}
		}
	})
}

// reload loads the only shard beside the one that serves.
func reload(t *testing.T, n *node) *shard {
	t.Helper()
	shards, err := n.server.groups.all()
	check(t, err)
	sh := newShard(n.server.groups, shards[0].session, shards[0].co)
	check(t, sh.load(context.Background()))
	return sh
}

// TestDeletedTopicOffsets: a topic's offsets go with it, and a topic that is made anew under its name has none.
func TestDeletedTopicOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		n.topic("t", 1, nil)
		n.topic("u", 1, nil)
		c := n.dial()
		commit := func(topic string) {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group = "g"
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic = topic
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Offset = 7
			rt.Partitions = append(rt.Partitions, p)
			req.Topics = append(req.Topics, rt)
			if got := c.do(8, req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; got != 0 {
				t.Fatalf("commit: %d", got)
			}
		}
		commit("t")
		commit("u")
		_, err := n.meta.DeleteTopic(context.Background(), n.meta.Image().Topic("t").ID)
		check(t, err)
		n.await("the offsets to go", func() bool { return len(reload(t, n).groups["g"].chunks) == 1 })
		n.topic("t", 1, nil)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "g"
		got := c.do(7, req).(*kmsg.OffsetFetchResponse)
		if len(got.Topics) != 1 || got.Topics[0].Topic != "u" || got.Topics[0].Partitions[0].Offset != 7 {
			t.Errorf("%+v", got.Topics)
		}
	})
}

// rawMember is a member by plain requests, for tests on virtual time.
type rawMember struct {
	c          *client
	group, id  string
	generation group.Generation
}

// member joins a group of one and takes its assignment.
func (c *client) member(id string, session time.Duration) *rawMember {
	c.t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.ProtocolType = id, int32(session.Milliseconds()), "consumer"
	join.RebalanceTimeoutMillis = join.SessionTimeoutMillis
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", (&kmsg.ConsumerMemberMetadata{Topics: []string{"t"}}).AppendTo(nil)
	join.Protocols = append(join.Protocols, p)
	joined := c.do(3, join).(*kmsg.JoinGroupResponse)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = id, joined.MemberID, joined.Generation
	if synced := c.do(2, sync).(*kmsg.SyncGroupResponse); joined.ErrorCode != 0 || synced.ErrorCode != 0 {
		c.t.Fatalf("joining group %s: %d, %d", id, joined.ErrorCode, synced.ErrorCode)
	}
	return &rawMember{c: c, group: id, id: joined.MemberID, generation: group.Generation(joined.Generation)}
}

func (m *rawMember) leave() {
	m.c.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.group, m.id
	if got := m.c.n.dial().do(1, req).(*kmsg.LeaveGroupResponse).ErrorCode; got != 0 {
		m.c.t.Fatalf("leaving group %s: %d", m.group, got)
	}
}

// TestOffsetExpiry: offsets of an empty group go when it has been empty for the retention, then the group; those of a group with
// members stay.
func TestOffsetExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{
			"offsets.topic.num.partitions": "1", "offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": "60000",
		}}).coordinating()
		topic := n.topic("t", 2, nil)
		a := n.dial().member("used", 30*time.Minute)
		edits := []chunkEdit{{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 3, Committed: metadata.MillisOf(time.Now())}}}}
		check(t, n.server.commitOffsets(context.Background(), "simple", group.Committer{Generation: group.NoGeneration}, edits))
		check(t, n.server.commitOffsets(context.Background(), "used", group.Committer{MemberID: a.id, Generation: a.generation}, edits))
		groups := func() []string { return slices.Sorted(maps.Keys(reload(t, n).groups)) }
		time.Sleep(9 * time.Minute)
		if got := groups(); !slices.Equal(got, []string{"simple", "used"}) {
			t.Errorf("after 9 minutes: %v", got)
		}
		time.Sleep(3 * time.Minute)
		if got := groups(); !slices.Equal(got, []string{"used"}) {
			t.Errorf("after 12 minutes: %v", got)
		}
		a.leave()
		time.Sleep(9 * time.Minute)
		if got := groups(); !slices.Equal(got, []string{"used"}) {
			t.Errorf("9 minutes after the last member left: %v", got)
		}
		time.Sleep(3 * time.Minute)
		if got := groups(); len(got) != 0 {
			t.Errorf("12 minutes after the last member left: %v", got)
		}
	})
}

// TestExpiryBesideACommit: a group without members and offsets is to be deleted just as somebody commits an offset. The offset stays.
func TestExpiryBesideACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		n.topic("t", 1, nil)
		c := n.dial()
		c.member("g", time.Minute).leave()
		synctest.Wait() // until that is stored
		sh, err := n.server.groups.find("g")
		check(t, err)
		release, req := n.holdWrites(), commitOf("g", 5)
		committing := c.send(pipedCommit, req)
		synctest.Wait()
		check(t, sh.call(sh.sweep)) // the commit is on its way
		release()
		if code := commitCode(c.receive(committing, req)); code != codeNone {
			t.Fatalf("the commit: %d", code)
		}
		synctest.Wait()
		if got := fetchedOffset(c.do(pipedFetch, fetchOf("g"))); got != 5 {
			t.Errorf("offset %d", got)
		}
	})
}

// TestLargeCommit: what is larger than one transaction is written and deleted in several, and metadata that does not fit is refused.
func TestLargeCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		topic := n.topic("t", 1, nil)
		who := group.Committer{Generation: group.NoGeneration}
		var edits []chunkEdit
		for p := int32(0); p < 10_000; p += metadata.OffsetsPerChunk {
			edits = append(edits, chunkEdit{id: metadata.ChunkOf(topic.ID, p), set: []metadata.CommittedOffset{{Partition: p, Offset: record.Offset(p), Committed: metadata.MillisOf(time.Now())}}})
		}
		if len(edits) <= maxGroupTxnOps {
			t.Fatalf("%d keys fit into one transaction", len(edits))
		}
		check(t, n.server.commitOffsets(context.Background(), "g", who, edits))
		found, err := n.server.readOffsets(context.Background(), "g", nil)
		if err != nil || len(found[topic.ID]) != len(edits) || len(reload(t, n).groups["g"].chunks) != len(edits) {
			t.Errorf("%d offsets of %d, %v", len(found[topic.ID]), len(edits), err)
		}
		var large []metadata.CommittedOffset
		for p := range int32(metadata.OffsetsPerChunk) {
			large = append(large, metadata.CommittedOffset{Partition: p, Metadata: strings.Repeat("m", metadata.MaxValueBytes/metadata.OffsetsPerChunk), Committed: metadata.MillisOf(time.Now())})
		}
		err = n.server.commitOffsets(context.Background(), "g", who, []chunkEdit{{id: metadata.ChunkOf(topic.ID, 0), set: large}})
		if groupCode(err) != codeOffsetMetadataTooLarge {
			t.Errorf("metadata beyond a value: %v", err)
		}
		first := chunkEdit{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 77, Committed: metadata.MillisOf(time.Now())}}}
		for i := range large {
			large[i].Partition += metadata.OffsetsPerChunk
		}
		err = n.server.commitOffsets(context.Background(), "g", who, []chunkEdit{first, {id: metadata.ChunkOf(topic.ID, metadata.OffsetsPerChunk), set: large}})
		if groupCode(err) != codeOffsetMetadataTooLarge {
			t.Errorf("metadata beyond a value in the second key: %v", err)
		}
		if list := reload(t, n).groups["g"].chunks[first.id].list; len(list) != 1 || list[0].Offset != 0 {
			t.Errorf("a part of a refused commit was written: %+v", list)
		}
		check(t, n.server.deleteGroup(context.Background(), "g"))
		if got := reload(t, n).groups; len(got) != 0 {
			t.Errorf("%d groups are left", len(got))
		}
	})
}

// TestCommitQueue: a shard that cannot write takes a bounded number of commits, and tells the rest to try again.
func TestCommitQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		topic := n.topic("t", 1, nil)
		release := n.holdWrites()
		codes := make(chan Code, maxWaitingCommits+10)
		var wg sync.WaitGroup
		for range cap(codes) {
			wg.Go(func() {
				codes <- groupCode(n.server.commitOffsets(context.Background(), "g", group.Committer{Generation: group.NoGeneration}, []chunkEdit{
					{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 1, Committed: metadata.MillisOf(time.Now())}}},
				}))
			})
		}
		time.Sleep(time.Second)
		if got := len(codes); got == 0 || got >= 10 {
			t.Errorf("%d commits were turned away", got)
		}
		release()
		wg.Wait()
		count := map[Code]int{}
		for range cap(codes) {
			count[<-codes]++
		}
		if count[codeNone] < maxWaitingCommits || count[codeNone]+count[codeCoordinatorNotAvailable] != cap(codes) {
			t.Errorf("codes: %v", count)
		}
	})
}

// commitOffsets commits and waits for the outcome.
func (s *Server) commitOffsets(ctx context.Context, id string, who group.Committer, edits []chunkEdit) error {
	outcome, _ := s.beginCommit(ctx, id, who, edits)
	return outcome()
}

// metric is the value of a gauge or a counter whose labels' values are these.
func (n *node) metric(name string, labels ...string) float64 {
	n.t.Helper()
	families, err := n.metrics.Gather()
	check(n.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetSummary().GetSampleCount())
			}
		}
	}
	n.t.Fatalf("no series %s%v", name, labels)
	return 0
}

// TestGroupMetrics: groups and offsets are counted by state, and what happens to them is.
func TestGroupMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick("offsets.retention.minutes", "10", "offsets.retention.check.interval.ms", "60000")}).coordinating()
		n.topic("t", 1, nil)
		n.topic("u", 1, nil)
		const prefix = "kafka_server_groupcoordinatormetrics_"
		want := func(v float64, name string, labels ...string) {
			t.Helper()
			if got := n.metric(name, labels...); got != v {
				t.Errorf("%s%v is %v, want %v", name, labels, got, v)
			}
		}
		want(5, prefix+"num_partitions", "active")
		want(0, prefix+"group_count", "classic")
		m := n.dial().member("g", time.Minute)
		v := &voice{t: t, group: "c", id: "m", topics: []string{"t"}}
		v.must(n, false)
		v.must(n, true) // it says that it has what it was given
		commit := commitOf("g", 1)
		commit.MemberID, commit.Generation = m.id, int32(m.generation)
		for _, req := range []*kmsg.OffsetCommitRequest{commit, commitOf("simple", 1), commitOf("simple", 2)} {
			if code := commitCode(n.dial().do(pipedCommit, req)); code != codeNone {
				t.Fatalf("code %d", code)
			}
		}
		for _, manager := range groupManagers {
			want(2, manager+"numgroups")
			want(1, manager+"numgroupsstable")
			want(1, manager+"numgroupsempty")
			want(2, manager+"numoffsets")
		}
		want(2, prefix+"group_count", "classic")
		want(1, prefix+"group_count", "consumer")
		want(1, prefix+"classic_group_count", "stable")
		want(1, prefix+"consumer_group_count", "stable")
		want(2, prefix+"offset_count")
		want(3, prefix+"offset_commit_count")
		want(1, prefix+"group_completed_rebalance_count")
		want(1, "varve_group_rebalance_time_ms") // the consumer group was stable at once
		want(5, prefix+"partition_load_time_ms")
		for _, name := range []string{"event_queue_time_ms", "event_processing_time_ms", "batch_flush_time_ms"} {
			if n.metric(prefix+name) == 0 {
				t.Errorf("%s counts nothing", name)
			}
		}
		rebalances := n.metric(prefix + "consumer_group_rebalance_count")
		r := v.request()
		r.SubscribedTopicNames = []string{"t", "u"}
		if code := v.ask(n, r).ErrorCode; code != 0 {
			t.Fatalf("code %d", code)
		}
		want(rebalances+1, prefix+"consumer_group_rebalance_count")
		check(t, n.server.deleteGroup(context.Background(), "simple"))
		want(1, prefix+"offset_deletion_count")
		m.leave()
		time.Sleep(12 * time.Minute)
		want(1, prefix+"offset_expiration_count")
		want(0, prefix+"offset_count")
		want(0, prefix+"group_count", "classic")
	})
}
