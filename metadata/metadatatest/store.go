// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Store is the suite of the domain layer on one implementation of the seam.
func Store(t *testing.T, h Harness) {
	t.Run("Topics", func(t *testing.T) { testTopics(t, h) })
	t.Run("CreateRace", func(t *testing.T) { testCreateRace(t, h) })
	t.Run("Images", func(t *testing.T) { testImages(t, h) })
	t.Run("Leading", func(t *testing.T) { testLeading(t, h) })
	t.Run("Fencing", func(t *testing.T) { testFencing(t, h) })
	t.Run("Eligible", func(t *testing.T) { testEligible(t, h) })
	t.Run("TakeOverMany", func(t *testing.T) { testTakeOverMany(t, h) })
	t.Run("ISR", func(t *testing.T) { testISR(t, h) })
	t.Run("LeadersTogether", func(t *testing.T) { testLeadersTogether(t, h) })
	t.Run("Reassign", func(t *testing.T) { testReassign(t, h) })
	t.Run("ReassignRequests", func(t *testing.T) { testReassignRequests(t, h) })
	t.Run("ReassignBack", func(t *testing.T) { testReassignBack(t, h) })
	t.Run("ReassignBelowMinimum", func(t *testing.T) { testReassignBelowMinimum(t, h) })
	t.Run("CancelWithoutInSync", func(t *testing.T) { testCancelWithoutInSync(t, h) })
	t.Run("Draining", func(t *testing.T) { testDraining(t, h) })
	t.Run("Unclean", func(t *testing.T) { testUnclean(t, h) })
	t.Run("Loads", func(t *testing.T) { testLoads(t, h) })
	t.Run("Manifest", func(t *testing.T) { testManifest(t, h) })
	t.Run("IntentContention", func(t *testing.T) { testIntentContention(t, h) })
	t.Run("Deleting", func(t *testing.T) { testDeleting(t, h) })
	t.Run("Sessions", func(t *testing.T) { testSessions(t, h) })
	t.Run("Roles", func(t *testing.T) { testRoles(t, h) })
	t.Run("DataDirectories", func(t *testing.T) { testDataDirectories(t, h) })
	t.Run("ProducerIDs", func(t *testing.T) { testProducerIDs(t, h) })
	t.Run("Shards", func(t *testing.T) { testShards(t, h) })
	t.Run("Groups", func(t *testing.T) { testGroups(t, h) })
	t.Run("Transactions", func(t *testing.T) { testTxns(t, h) })
	t.Run("PendingOffsets", func(t *testing.T) { testPendingOffsets(t, h) })
	t.Run("ManyPendingOffsets", func(t *testing.T) { testManyPendingOffsets(t, h) })
	t.Run("DropPending", func(t *testing.T) { testDropPending(t, h) })
	t.Run("ShardsTogether", func(t *testing.T) { testShardsTogether(t, h) })
	t.Run("Offsets", func(t *testing.T) { testOffsets(t, h) })
	t.Run("Configs", func(t *testing.T) { testConfigs(t, h) })
	t.Run("Quotas", func(t *testing.T) { testQuotas(t, h) })
	t.Run("QuotaLateCopy", func(t *testing.T) { testQuotaLateCopy(t, h) })
	t.Run("Versions", func(t *testing.T) { testVersions(t, h) })
	t.Run("NewerFormats", func(t *testing.T) { testNewerFormats(t, h) })
	t.Run("Reconcile", func(t *testing.T) { testReconcile(t, h) })
	t.Run("Identity", func(t *testing.T) { testIdentity(t, h) })
	t.Run("UnknownOutcomes", func(t *testing.T) { testUnknownOutcomes(t, h) })
	t.Run("WatchRevisionCompacted", func(t *testing.T) { testCompactedImage(t, h) })
	t.Run("Outage", func(t *testing.T) { testOutage(t, h) })
}

func testTopics(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1)
	ctx := testContext(t)
	topic, err := n.CreateTopic(ctx, metadata.TopicSpec{
		Name: "a/b %", Partitions: [][]record.NodeID{{1}, {1}}, Overrides: map[string]string{"retention.ms": "5000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.wait(topic.Rev)
	img := n.Image()
	got := img.Topic("a/b %")
	if got == nil || got.ID != topic.ID || len(got.Partitions) != 2 || got.Config == nil || got.Config.RetentionMillis != 5000 {
		t.Fatalf("image has %+v", got)
	}
	if p, ok := img.Partition(metadata.PartitionID{Topic: topic.ID, Index: 1}); !ok || p.Leader.Node != record.NoNode || p.Leader.Rev != 0 {
		t.Errorf("partition without a leader: %+v, %v", p, ok)
	}
	if _, ok := img.Partition(metadata.PartitionID{Topic: topic.ID, Index: 2}); ok {
		t.Error("the image has a partition that the topic has not")
	}
	if _, err := n.CreateTopic(ctx, metadata.TopicSpec{Name: "a/b %", Partitions: [][]record.NodeID{{1}}}); !errors.Is(err, metadata.ErrTopicExists) {
		t.Errorf("creating it again: %v", err)
	}
	if _, err := n.CreateTopic(ctx, metadata.TopicSpec{Name: "other", ID: topic.ID, Partitions: [][]record.NodeID{{1}}}); !errors.Is(err, metadata.ErrTopicExists) {
		t.Errorf("another name with the id: %v", err)
	}
	grown, err := n.CreatePartitions(ctx, topic.ID, 2, [][]record.NodeID{{1}, {1}})
	if err != nil || len(grown.Partitions) != 4 {
		t.Fatalf("CreatePartitions: %+v, %v", grown, err)
	}
	if _, err := n.CreatePartitions(ctx, topic.ID, 2, [][]record.NodeID{{1}}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("CreatePartitions from an old number: %v", err)
	}
	altered, err := n.AlterTopicConfig(ctx, topic.ID, func(o map[string]string) error { delete(o, "retention.ms"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	n.wait(altered.Rev)
	if got := n.Image().TopicByID(topic.ID); len(got.Partitions) != 4 || len(got.Overrides) != 0 || got.Config.RetentionMillis == 5000 {
		t.Errorf("after the changes: %+v", got)
	}
	if img.Topic("a/b %") != got || len(got.Partitions) != 2 {
		t.Error("the older image changed")
	}
	read, err := n.ReadTopicByName(ctx, "a/b %")
	if err != nil || read.ID != topic.ID || read.Rev != altered.Rev {
		t.Errorf("ReadTopicByName: %+v, %v", read, err)
	}
	if _, err := n.ReadTopicByName(ctx, "none"); !errors.Is(err, metadata.ErrUnknownTopic) {
		t.Errorf("ReadTopicByName of none: %v", err)
	}
	many := make([][]record.NodeID, 40000)
	for i := range many {
		many[i] = []record.NodeID{1000, 1001, 1002}
	}
	if _, err := n.CreateTopic(ctx, metadata.TopicSpec{Name: "big", Partitions: many}); !errors.Is(err, metadata.ErrTooLarge) {
		t.Errorf("a value beyond the limit: %v", err)
	}
}

func testCreateRace(t *testing.T, h Harness) {
	p := prefix(t)
	nodes := []*node{startNode(t, h, p, 1), startNode(t, h, p, 2), startNode(t, h, p, 3)}
	if a, b := nodes[0].ClusterID(), nodes[1].ClusterID(); a != b || len(a) != 22 {
		t.Fatalf("cluster ids %q and %q", a, b)
	}
	ctx := testContext(t)
	for i := range 10 {
		name := fmt.Sprint("t", i)
		var wg sync.WaitGroup
		won := make([]*metadata.Topic, len(nodes))
		errs := make([]error, len(nodes))
		for k, n := range nodes {
			wg.Go(func() {
				won[k], errs[k] = n.CreateTopic(ctx, metadata.TopicSpec{Name: name, Partitions: [][]record.NodeID{{n.id}}})
			})
		}
		wg.Wait()
		var winner *metadata.Topic
		for k := range nodes {
			switch {
			case errs[k] == nil && winner == nil:
				winner = won[k]
			case errs[k] == nil:
				t.Fatalf("%s was created twice", name)
			case !errors.Is(errs[k], metadata.ErrTopicExists):
				t.Fatalf("%s: %v", name, errs[k])
			}
		}
		if winner == nil {
			t.Fatalf("nobody created %s", name)
		}
		for _, n := range nodes {
			n.wait(winner.Rev)
			if got := n.Image().Topic(name); got == nil || got.ID != winner.ID || n.Image().TopicCount() != i+1 {
				t.Fatalf("node %d sees %+v of %d topics", n.id, got, n.Image().TopicCount())
			}
		}
	}
}

// describeChange says in a word what happened to a topic, and in one each which partitions changed.
func describeChange(c metadata.TopicChange) (words []string) {
	switch {
	case c.Old == nil:
		words = append(words, "+"+c.New.Name)
	case c.New == nil:
		words = append(words, "-"+c.Old.Name)
	case c.Old != c.New:
		words = append(words, "~"+c.New.Name)
	}
	for _, i := range c.Partitions {
		words = append(words, fmt.Sprint("p", i))
	}
	return words
}

func testImages(t *testing.T, h Harness) {
	p := prefix(t)
	n, other := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2)
	n.wait(n.session.Revision())
	var mu sync.Mutex
	var seen []string
	last := n.Image()
	cancel := n.Subscribe(func(old, new *metadata.Image) {
		mu.Lock()
		defer mu.Unlock()
		if old.Revision > new.Revision || old.Revision < last.Revision {
			t.Errorf("image %d after %d, last seen %d", new.Revision, old.Revision, last.Revision)
		}
		last = new
		metadata.Diff(old, new, func(c metadata.TopicChange) { seen = append(seen, describeChange(c)...) })
	})
	topic := other.create("a", make([][]record.NodeID, 70)...)
	rev := topic.Rev
	n.wait(rev)
	for have := range 2 {
		more, err := n.CreatePartitions(testContext(t), topic.ID, 70+have, [][]record.NodeID{{1}})
		if err != nil {
			t.Fatal(err)
		}
		n.wait(more.Rev) // or two changes would be one image
	}
	grown, err := n.AlterTopicConfig(testContext(t), topic.ID, func(map[string]string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	n.wait(grown.Rev)
	l := n.take(metadata.PartitionID{Topic: topic.ID, Index: 70})
	n.wait(l.LeaderRev)
	other.wait(l.LeaderRev)
	for _, node := range []*node{n, other} {
		got, ok := node.Image().Partition(l.ID)
		if !ok || got.Leader.Node != 1 || got.Leader.Rev != l.LeaderRev || got.ISR.Rev != l.LeaderRev || got.Head.Rev != l.LeaderRev {
			t.Errorf("node %d sees %+v", node.id, got)
		}
	}
	if b := other.Image().Broker(1); b == nil || b.Incarnation != n.session.Incarnation() || b.Endpoints[0].Port != 9092 {
		t.Errorf("registration seen: %+v", b)
	}
	mu.Lock()
	got := strings.Join(seen, " ")
	mu.Unlock()
	if want := "+a ~a ~a ~a p70"; got != want || grown.Rev <= rev {
		t.Errorf("subscriber saw %q, want %q", got, want)
	}
	cancel()
	if _, err := other.DeleteTopic(testContext(t), topic.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion is seen", func() bool { return n.Image().Topic("a") == nil })
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 5 {
		t.Errorf("a cancelled subscription was called: %v", seen)
	}
}

func testCompactedImage(t *testing.T, h Harness) {
	p := prefix(t)
	n, other := startNode(t, h, p, 1), startNode(t, h, p, 2)
	keep := n.create("keep", []record.NodeID{1})
	gone := n.create("gone", []record.NodeID{1})
	before := n.Image().Topic("keep")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	if _, err := other.DeleteTopic(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	if more, err := other.DrainDeleting(ctx, drainOptions()); err != nil || more {
		t.Fatalf("drain: %v, %v", more, err)
	}
	added := other.create("added", []record.NodeID{2})
	if err := other.kv.Compact(ctx, added.Rev); err != nil {
		t.Fatal(err)
	}
	var changes []string
	defer n.Subscribe(func(old, new *metadata.Image) {
		metadata.Diff(old, new, func(c metadata.TopicChange) {
			if c.Old == nil {
				changes = append(changes, "+"+c.New.Name)
			} else {
				changes = append(changes, "-"+c.Old.Name)
			}
		})
	})()
	n.run() // loads again and watches on
	n.wait(added.Rev)
	img := n.Image()
	if img.Topic("gone") != nil || img.TopicByID(gone.ID) != nil || img.Topic("added") == nil || img.TopicByID(keep.ID) != before {
		t.Errorf("after a load over compacted history: %d topics, kept one the same: %v", img.TopicCount(), img.TopicByID(keep.ID) == before)
	}
	if err := n.stop(); err != nil { // its goroutine calls the subscriber
		t.Fatal(err)
	}
	if len(changes) != 2 {
		t.Errorf("changes told: %v", changes)
	}
}

func testOutage(t *testing.T, h Harness) {
	if h.Outage == nil {
		t.Skip("this harness cannot take its store away")
	}
	p := prefix(t)
	n, other := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2)
	topic := n.create("a", []record.NodeID{1})
	l := n.take(metadata.PartitionID{Topic: topic.ID})
	restore := h.Outage(t)
	short := testContextFor(t, 500*time.Millisecond)
	if _, err := n.AdvanceLogStart(short, l, 5, nil); !errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrUnknown) {
		t.Errorf("a change without a store: %v", err)
	}
	if !n.session.Alive() || n.Image().Topic("a") == nil {
		t.Error("the node gave up at once")
	}
	restore()
	head, err := n.AdvanceLogStart(testContextFor(t, 30*time.Second), l, 7, nil)
	if err != nil || head.LogStart != 7 {
		t.Fatalf("after the outage: %+v, %v", head, err)
	}
	b := other.create("b", []record.NodeID{2})
	n.wait(b.Rev)
	other.wait(head.Rev)
	if st, _ := other.Image().Partition(l.ID); st.Head.LogStart != 7 || n.Image().Topic("b") == nil || n.session.Err() != nil {
		t.Errorf("images did not resume: %+v", st)
	}
}
