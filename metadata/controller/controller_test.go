// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// member is a node of which only the metadata and the controller run.
type member struct {
	t       *testing.T
	meta    *metadata.Store
	session *metadata.Session
	id      record.NodeID
	store   metadata.UUID
	c       *Controller
	bytes   sync.Map // PartitionID -> int64
	stop    func()
}

func startMember(t *testing.T, server *memory.Server, id record.NodeID) *member {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	kv := server.Client()
	meta, err := metadata.Open(ctx, kv, metadata.Options{NodeID: id, CompactEvery: -1, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, meta: meta, id: id, store: metadata.NewUUID()}
	m.c = New(Config{Logger: log, BytesIn: m.bytesIn}, meta)
	var running sync.WaitGroup
	running.Go(func() { _ = meta.Run(ctx) })
	running.Go(func() { _ = m.c.Run(ctx) })
	m.session, err = meta.Register(ctx, metadata.BrokerInfo{StoreID: m.store, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	m.stop = sync.OnceFunc(func() {
		_ = m.session.Close(context.Background()) // it ends by itself
		cancel()
		running.Wait()
		_ = kv.Close()
	})
	t.Cleanup(m.stop)
	return m
}

func (m *member) bytesIn() map[metadata.PartitionID]int64 {
	out := map[metadata.PartitionID]int64{}
	m.bytes.Range(func(k, v any) bool { out[k.(metadata.PartitionID)] = v.(int64); return true })
	return out
}

// await waits, in virtual time, until the member's image shows it.
func (m *member) await(what string, within time.Duration, fn func(*metadata.Image) bool) {
	m.t.Helper()
	for deadline := time.Now().Add(within); !fn(m.meta.Image()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func (m *member) replicas(id metadata.PartitionID) []record.NodeID {
	t := m.meta.Image().TopicByID(id.Topic)
	if t == nil {
		return nil
	}
	return t.Partitions[id.Index]
}

// TestTerms: one node at a time acts, another one as soon as its registration has ended; the factor follows the nodes, a drain
// empties one.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		server := memory.New()
		one := startMember(t, server, 1)
		topic, err := one.meta.CreateTopic(ctx, metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{1}}, AutoRF: true})
		if err != nil {
			t.Fatal(err)
		}
		id := metadata.PartitionID{Topic: topic.ID}
		one.await("the topic", time.Second, func(*metadata.Image) bool { return one.replicas(id) != nil })
		two, three := startMember(t, server, 2), startMember(t, server, 3)
		one.await("a replica on every node", 5*time.Second, func(*metadata.Image) bool { return len(one.replicas(id)) == 3 })
		if _, err := three.meta.Drain(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*member{one, three} {
			m.await("node 2 empty", 5*time.Second, func(img *metadata.Image) bool {
				return img.Draining(2) && !slices.Contains(m.replicas(id), 2) && len(m.replicas(id)) == 2
			})
		}
		if mine, err := two.meta.Elect(ctx, two.session, Role); mine || err != nil {
			t.Errorf("node 2 has the role while node 1 acts: %v, %v", mine, err)
		}
		if holder, err := three.meta.Holder(ctx, Role); holder != 1 || err != nil {
			t.Errorf("node %d holds the role while node 1 acts: %v", holder, err)
		}
		one.stop()
		if _, err := three.meta.Undrain(ctx, 2); err != nil {
			t.Fatal(err)
		}
		startMember(t, server, 4)
		three.await("another controller", 5*time.Second, func(*metadata.Image) bool { return len(three.replicas(id)) == 3 })
		if holder, err := three.meta.Holder(ctx, Role); holder == 1 || holder == record.NoNode || err != nil {
			t.Errorf("node %d holds the role after node 1 stopped: %v", holder, err)
		}
	})
}

// TestUncleanElection: only topics that allow it get a leader that is not in sync, and not at once.
func TestUncleanElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		server := memory.New()
		one, two := startMember(t, server, 1), startMember(t, server, 2)
		two.await("both nodes", time.Second, func(img *metadata.Image) bool { return len(img.Brokers()) == 2 })
		var ids []metadata.PartitionID
		for name, allowed := range map[string]string{"a": "true", "b": "false"} {
			topic, err := one.meta.CreateTopic(ctx, metadata.TopicSpec{
				Name: name, Partitions: [][]record.NodeID{{1, 2}}, Overrides: map[string]string{"unclean.leader.election.enable": allowed},
			})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, metadata.PartitionID{Topic: topic.ID})
		}
		two.await("both topics", time.Second, func(img *metadata.Image) bool { return img.Topic("a") != nil && img.Topic("b") != nil })
		led, err := one.meta.TakeOver(ctx, one.session, ids)
		if err != nil || len(led) != 2 {
			t.Fatalf("%v, %v", led, err)
		}
		for _, l := range led {
			if _, err := one.meta.ChangeISR(ctx, l, metadata.ISRChange{From: l.ISR, MinISR: 1, Remove: []record.NodeID{2}}); err != nil {
				t.Fatal(err)
			}
		}
		one.stop()
		gone := time.Now()
		leader := func(img *metadata.Image, name string) metadata.LeaderState {
			p, _ := img.Partition(metadata.PartitionID{Topic: img.Topic(name).ID})
			return p.Leader
		}
		two.await("an unclean leader", time.Minute, func(img *metadata.Image) bool { return leader(img, "a").Node == 2 })
		if took := time.Since(gone); took < uncleanAfter {
			t.Errorf("elected after %s", took)
		}
		time.Sleep(10 * time.Minute)
		if l := leader(two.meta.Image(), "b"); l.Node != 1 {
			t.Errorf("a topic that does not allow it: %+v", l)
		}
		if n := two.c.UncleanElections(); n != 1 {
			t.Errorf("%d unclean elections are counted", n)
		}
	})
}

// TestRatesOutliveLeaders: a partition keeps its load when its leader changes, until the new one reports it or has had the time to.
func TestRatesOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		server := memory.New()
		one, two := startMember(t, server, 1), startMember(t, server, 2)
		one.await("both nodes", time.Second, func(img *metadata.Image) bool { return len(img.Brokers()) == 2 })
		topic, err := one.meta.CreateTopic(ctx, metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{1, 2}}})
		if err != nil {
			t.Fatal(err)
		}
		id := metadata.PartitionID{Topic: topic.ID}
		c := New(Config{}, one.meta)
		now := time.Now()
		expect := func(what string, want int64) {
			t.Helper()
			if err := c.readLoads(ctx, now, one.meta.Image()); err != nil || c.rates[id].rate != want {
				t.Errorf("%s: rate %d, want %d, %v", what, c.rates[id].rate, want, err)
			}
		}
		report := func(m *member, loads ...metadata.PartitionLoad) {
			t.Helper()
			if err := m.meta.PutLoad(ctx, m.session, loads); err != nil {
				t.Fatal(err)
			}
		}
		led, err := one.meta.TakeOver(ctx, one.session, []metadata.PartitionID{id})
		if err != nil {
			t.Fatal(err)
		}
		one.await("a leader", time.Second, func(img *metadata.Image) bool { p, _ := img.Partition(id); return p.Leader.Node == 1 })
		report(one, metadata.PartitionLoad{ID: id, Rate: 7000})
		report(two, metadata.PartitionLoad{ID: id, Rate: 1}) // of an earlier term
		expect("reported", 7000)
		to, _ := led[0].ISR.Member(2)
		if _, err := one.meta.TransferLeadership(ctx, led[0], led[0].ISR, to); err != nil {
			t.Fatal(err)
		}
		one.await("another leader", time.Second, func(img *metadata.Image) bool { p, _ := img.Partition(id); return p.Leader.Node == 2 })
		expect("nothing reported since", 7000)
		report(two)
		expect("the new leader cannot know yet", 7000)
		now = now.Add(rateKnown)
		expect("the new leader has had the time", 0)
		report(two, metadata.PartitionLoad{ID: id, Rate: 8000})
		expect("reported again", 8000)
	})
}

// TestBalanceByReports: what leaders report makes the controller change the preferred leaders, and once that is done it rests.
func TestBalanceByReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		server := memory.New()
		one, two := startMember(t, server, 1), startMember(t, server, 2)
		one.await("both nodes", time.Second, func(img *metadata.Image) bool { return len(img.Brokers()) == 2 })
		time.Sleep(nodeIsNew) // or what follows would be done at once
		topic, err := one.meta.CreateTopic(ctx, metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{1, 2}, {1, 2}, {2, 1}}})
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]metadata.PartitionID, 3)
		for i := range ids {
			ids[i] = metadata.PartitionID{Topic: topic.ID, Index: int32(i)}
		}
		one.await("the topic", time.Second, func(*metadata.Image) bool { return one.replicas(ids[0]) != nil })
		for m, led := range map[*member][]metadata.PartitionID{one: ids[:2], two: ids[2:]} {
			if got, err := m.meta.TakeOver(ctx, m.session, led); err != nil || len(got) != len(led) {
				t.Fatalf("taking over %v: %v, %v", led, got, err)
			}
		}
		began := time.Now()
		done := make(chan struct{})
		defer close(done)
		go func() {
			for second := int64(0); ; second++ {
				one.bytes.Store(ids[0], second*1_000_000)
				one.bytes.Store(ids[1], second*1_000_000)
				two.bytes.Store(ids[2], second*1_000)
				select {
				case <-time.After(time.Second):
				case <-done:
					return
				}
			}
		}()
		swapped := func(*metadata.Image) bool { return (one.replicas(ids[0])[0] == 2) != (one.replicas(ids[1])[0] == 2) }
		one.await("one of the busy partitions prefers node 2", 2*time.Minute, swapped)
		if took := time.Since(began); took < skewHolds {
			t.Errorf("it moved after %s: before the load can have been uneven for %s", took, skewHolds)
		}
		rev := one.meta.Image().TopicByID(topic.ID).Rev
		time.Sleep(30 * time.Minute)
		if now := one.meta.Image().TopicByID(topic.ID); now.Rev != rev || !slices.Equal(now.Partitions[2], []record.NodeID{2, 1}) {
			t.Errorf("at steady load it went on: %v", now.Partitions)
		}
	})
}
