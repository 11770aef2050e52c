// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

func testSessions(t *testing.T, h Harness) {
	p := prefix(t)
	short := func(o *metadata.Options) { o.LeaseTTL = 2 * time.Second }
	n := startNode(t, h, p, 1, short).register(1)
	if !n.session.Alive() || n.session.Err() != nil || n.session.Node() != 1 {
		t.Error("a new session is not alive")
	}
	time.Sleep(3 * time.Second)
	if !n.session.Alive() || n.session.Age() > time.Second {
		t.Errorf("a kept session is %s old", n.session.Age())
	}
	twin := startNode(t, h, p, 1, short)
	_, err := twin.Register(testContext(t), metadata.BrokerInfo{StoreID: metadata.NewUUID(), Boots: 1})
	if !errors.Is(err, metadata.ErrNodeIDTaken) || !strings.Contains(err.Error(), "127.0.0.1:9092") {
		t.Errorf("another directory under a live node id: %v", err)
	}
	if !n.session.Alive() {
		t.Error("the attempt took the session away")
	}
	mine, err := n.Elect(testContext(t), n.session, "test")
	if err != nil || !mine {
		t.Fatalf("Elect: %v, %v", mine, err)
	}
	other := startNode(t, h, p, 2, short).register(1)
	if mine, err := other.Elect(testContext(t), other.session, "test"); err != nil || mine {
		t.Errorf("Elect of what another holds: %v, %v", mine, err)
	}
	incarnation := n.session.Incarnation()
	if err := n.session.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if n.session.Alive() {
		t.Error("a closed session is alive")
	}
	if mine, err := other.Elect(testContext(t), other.session, "test"); err != nil || !mine {
		t.Errorf("Elect after the holder left: %v, %v", mine, err)
	}
	n.register(1)
	if n.session.Incarnation() <= incarnation {
		t.Error("the incarnation did not rise")
	}
	// Somebody deletes the registration: the node finds out by its image.
	must(t, n.kv, del(p+"s/broker/1"))
	select {
	case <-n.session.Lost():
	case <-testContext(t).Done():
		t.Fatal("a deleted registration was not noticed")
	}
	if !errors.Is(n.session.Err(), metadata.ErrSessionLost) {
		t.Errorf("lost by: %v", n.session.Err())
	}
}

// testRoles: a role is free once its holder registered anew, though the lease under which it was taken lives on.
func testRoles(t *testing.T, h Harness) {
	p := prefix(t)
	holder, other := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	if mine, err := holder.Elect(testContext(t), holder.session, "test"); err != nil || !mine {
		t.Fatalf("Elect: %v, %v", mine, err)
	}
	if mine, err := other.Elect(testContext(t), other.session, "test"); err != nil || mine {
		t.Fatalf("Elect of what another holds: %v, %v", mine, err)
	}
	reborn := startNode(t, h, p, 1)
	reborn.storeID = holder.storeID
	reborn.register(2)
	if mine, err := other.Elect(testContext(t), other.session, "test"); err != nil || !mine {
		t.Errorf("Elect after the holder started anew: %v, %v", mine, err)
	}
	if mine, err := reborn.Elect(testContext(t), reborn.session, "test"); err != nil || mine {
		t.Errorf("Elect of what was taken meanwhile: %v, %v", mine, err)
	}
}

func testDataDirectories(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := metadata.NewUUID(), metadata.NewUUID()
	record := func(n *node, want string, stores ...metadata.StoreBoots) {
		t.Helper()
		suspect, err := n.RegisterNode(testContext(t), stores)
		got := ""
		for _, s := range suspect {
			got += map[bool]string{true: "suspect ", false: "good "}[s]
		}
		if err != nil || got != want {
			t.Errorf("RegisterNode(%v): %q, %v, want %q", stores, got, err, want)
		}
	}
	record(startNode(t, h, p, 1), "good ", metadata.StoreBoots{StoreID: a, Boots: 1})
	n := startNode(t, h, p, 1)
	record(n, "good good ", metadata.StoreBoots{StoreID: a, Boots: 2}, metadata.StoreBoots{StoreID: b, Boots: 1})
	record(n, "good good ", metadata.StoreBoots{StoreID: a, Boots: 2}, metadata.StoreBoots{StoreID: b, Boots: 1}) // the same process
	record(startNode(t, h, p, 1), "suspect ", metadata.StoreBoots{StoreID: a, Boots: 2})
	record(startNode(t, h, p, 1), "suspect good ", metadata.StoreBoots{StoreID: b, Boots: 1}, metadata.StoreBoots{StoreID: a, Boots: 3})
	record(startNode(t, h, p, 2), "good ", metadata.StoreBoots{StoreID: metadata.NewUUID(), Boots: 1})
	record(startNode(t, h, p, 1), "good ", metadata.StoreBoots{StoreID: metadata.NewUUID(), Boots: 1})
	record(startNode(t, h, p, 1), "suspect ", metadata.StoreBoots{StoreID: a, Boots: 3}) // an old directory that comes back

	// A copy is opened more often than the original by being refused again and again, and one of a running node was opened once less.
	c := metadata.NewUUID()
	n = startNode(t, h, p, 3)
	record(n, "good ", metadata.StoreBoots{StoreID: c, Boots: 5, Stamp: 1})
	record(n, "good ", metadata.StoreBoots{StoreID: c, Boots: 5, Stamp: 2}) // the same process, later
	for boots := uint64(5); boots < 9; boots++ {
		record(startNode(t, h, p, 3), "suspect ", metadata.StoreBoots{StoreID: c, Boots: boots, Stamp: 1})
	}
	record(startNode(t, h, p, 3), "good ", metadata.StoreBoots{StoreID: c, Boots: 6, Stamp: 2})
	record(startNode(t, h, p, 3), "good ", metadata.StoreBoots{StoreID: c, Boots: 7, Stamp: 3}) // raised, and etcd did not hear of it
}

func testProducerIDs(t *testing.T, h Harness) {
	p := prefix(t)
	nodes := []*node{startNode(t, h, p, 1), startNode(t, h, p, 2)}
	var mu sync.Mutex
	blocks := map[int64]bool{}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			for range 5 {
				first, size, err := n.AllocateProducerIDs(testContext(t))
				if err != nil || size != 1000 || first%1000 != 0 {
					t.Errorf("block %d of %d, %v", first, size, err)
				}
				mu.Lock()
				if blocks[first] {
					t.Errorf("block %d was given out twice", first)
				}
				blocks[first] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(blocks) != 10 || !blocks[9000] {
		t.Errorf("blocks: %v", blocks)
	}
}

func testConfigs(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1)
	plain := n.create("plain", []record.NodeID{1})
	set := func(entity, value string) {
		t.Helper()
		rev, err := n.AlterBrokerConfig(testContext(t), entity, func(m map[string]string) error {
			if m["log.retention.ms"] = value; value == "" {
				delete(m, "log.retention.ms")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		n.wait(rev)
	}
	look := func(want int64) {
		t.Helper()
		if got := n.Image().TopicByID(plain.ID).Config.RetentionMillis; got != want {
			t.Errorf("retention in force %d, want %d", got, want)
		}
	}
	set("", "1000")
	look(1000)
	set("1", "2000")
	look(2000)
	set("2", "3000")
	look(2000)
	if got := n.Image().BrokerConfig("1")["log.retention.ms"]; got != "2000" || n.Image().BrokerConfig("")["log.retention.ms"] != "1000" {
		t.Errorf("stored: %q", got)
	}
	set("1", "")
	look(1000)
	failed := errors.New("not valid")
	if _, err := n.AlterBrokerConfig(testContext(t), "1", func(map[string]string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a change that its caller refuses: %v", err)
	}
}

func testVersions(t *testing.T, h Harness) {
	p := prefix(t)
	runs := func(low, high int) func(*metadata.Options) {
		return func(o *metadata.Options) { o.Versions = metadata.VersionRange{Min: low, Max: high} }
	}
	old := startNode(t, h, p, 1, runs(1, 1)).register(1)
	n := startNode(t, h, p, 2, runs(1, 2)).register(1)
	n.wait(n.session.Revision())
	if v := n.Image().Version; v != 1 {
		t.Errorf("cluster version %d", v)
	}
	if err := n.UpgradeCluster(testContext(t), 2); !errors.Is(err, metadata.ErrVersionRange) || !strings.Contains(err.Error(), "node 1 ") {
		t.Errorf("upgrading while a node cannot: %v", err)
	}
	if err := n.UpgradeCluster(testContext(t), 3); !errors.Is(err, metadata.ErrVersionRange) {
		t.Errorf("upgrading beyond this binary: %v", err)
	}
	if err := old.session.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := n.UpgradeCluster(testContext(t), 2); err != nil {
		t.Fatal(err)
	}
	if err := n.UpgradeCluster(testContext(t), 1); !errors.Is(err, metadata.ErrVersionRange) {
		t.Errorf("going back: %v", err)
	}
	var newer *metadata.ErrNewerVersion
	if _, err := old.Register(testContext(t), metadata.BrokerInfo{StoreID: old.storeID, Boots: 2}); !errors.As(err, &newer) {
		t.Errorf("registering a binary that is too old: %v", err)
	}
	select {
	case <-old.Failed():
	case <-testContext(t).Done():
		t.Fatal("an old node that runs did not notice the upgrade")
	}
	if !errors.As(old.Err(), &newer) || newer.Have != 2 || newer.Can != 1 || newer.What != "cluster version" {
		t.Errorf("it stopped by: %v", old.Err())
	}
	_, err := metadata.Open(testContext(t), client(t, h), metadata.Options{
		NodeID: 3, Prefix: p, Logger: quiet(), Versions: metadata.VersionRange{Min: 3, Max: 4},
	})
	if !errors.Is(err, metadata.ErrVersionRange) {
		t.Errorf("opening with a binary that is too new: %v", err)
	}
}

// testNewerFormats puts a value of format 2 in the place of each kind.
func testNewerFormats(t *testing.T, h Harness) {
	id := strings.Repeat("0a", 16)
	future := string(append([]byte{2}, make([]byte, 40)...))
	refused := func(t *testing.T, what string, err error) {
		t.Helper()
		var newer *metadata.ErrNewerVersion
		if !errors.As(err, &newer) || newer.What != what || newer.Have != 2 || newer.Can != 1 || !strings.Contains(err.Error(), what+" has format 2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for key, what := range map[string]string{
		"s/broker/7": "broker", "s/name/x": "topic name", "s/topic/" + id: "topic", "s/leader/" + id + "/0": "leader",
		"s/isr/" + id + "/0": "isr", "s/head/" + id + "/0": "head", "s/config/broker/default": "config", "s/quota/user=default": "quota", "s/cluster/version": "cluster/version",
		"s/cluster/gen": "cluster generation",
	} {
		p := prefix(t)
		n := startNode(t, h, p, 1)
		must(t, n.kv, put(p+key, future))
		select {
		case <-n.Failed():
			refused(t, what, n.Err())
		case <-testContext(t).Done():
			t.Fatalf("%s: not noticed", what)
		}
	}
	p := prefix(t)
	n := startNode(t, h, p, 1).register(1)
	ctx := testContext(t)
	var zero metadata.UUID
	must(t, n.kv, put(p+"d/gc/"+id, future), put(p+"d/intent/"+zero.String()+"/0/"+id, future), put(p+"d/node/1", future), put(p+"d/pidblock", future),
		put(p+"d/role/r", future))
	_, err := n.GCRecords(ctx)
	refused(t, "gc record", err)
	_, err = n.Intents(ctx, metadata.PartitionID{})
	refused(t, "intent", err)
	_, err = n.RegisterNode(ctx, []metadata.StoreBoots{{StoreID: zero, Boots: 1}})
	refused(t, "node", err)
	_, _, err = n.AllocateProducerIDs(ctx)
	refused(t, "producer id block", err)
	_, err = n.Elect(ctx, n.session, "r")
	refused(t, "role", err)
	// deleting/ is read by the drain only; an image needs no more than that the key is there.
	must(t, n.kv, put(p+"s/deleting/"+id, future))
	_, err = n.DrainDeleting(ctx, drainOptions())
	refused(t, "deletion", err)
}

func testIdentity(t *testing.T, h Harness) {
	const ours, other = "AAAAAAAAQACAAAAAAAAAAA", "BBBBBBBBQACAAAAAAAAAAA"
	type o = metadata.Options
	open := func(p string, change func(*o)) (*metadata.Store, error) {
		opts := o{NodeID: 1, Prefix: p, Logger: quiet(), ClusterName: "prod"}
		change(&opts)
		return metadata.Open(testContext(t), client(t, h), opts)
	}
	empty := prefix(t)
	for want, fn := range map[error]func(*o){
		metadata.ErrEtcdEmpty:   func(x *o) { x.BucketClusterID = ours },
		metadata.ErrDataOfOther: func(x *o) { x.DataClusterID, x.DataNode = ours, 1 },
	} {
		if _, err := open(empty, fn); !errors.Is(err, want) || !oneLine(err, ours) {
			t.Errorf("etcd empty: %v, want %v", err, want)
		}
	}
	if _, err := open(empty, func(x *o) { x.BucketClusterID = ours }); err == nil || !strings.Contains(err.Error(), `run "varve restore --reconcile"`) {
		t.Errorf("the advice is missing: %v", err)
	}
	s, err := open(empty, func(*o) {})
	if err != nil || !s.BucketUnconfirmed() || len(s.ClusterID()) != 22 || s.Gen() != 1 {
		t.Fatalf("a new cluster: %v", err)
	}
	// A crash before the bucket was written: the next start goes on, with or without what the first one wrote.
	for _, bucket := range []string{"", s.ClusterID()} {
		if again, err := open(empty, func(x *o) { x.BucketClusterID, x.DataClusterID, x.DataNode = bucket, s.ClusterID(), 1 }); err != nil ||
			!again.BucketUnconfirmed() || again.ClusterID() != s.ClusterID() {
			t.Errorf("before the bucket is confirmed: %v", err)
		}
	}
	for range 2 {
		if err := s.ConfirmBucket(testContext(t)); err != nil || s.BucketUnconfirmed() {
			t.Fatal(err)
		}
	}
	id := s.ClusterID()
	for name, tc := range map[string]struct {
		fn   func(*o)
		want error
		says []string
	}{
		"all agree":       {func(x *o) { x.BucketClusterID, x.DataClusterID, x.DataNode = id, id, 1 }, nil, nil},
		"a new node":      {func(x *o) { x.BucketClusterID = id }, nil, nil},
		"emptied bucket":  {func(x *o) { x.DataClusterID, x.DataNode = id, 1 }, metadata.ErrBucketEmpty, []string{id, "--bucket"}},
		"other bucket":    {func(x *o) { x.BucketClusterID = other }, metadata.ErrBucketOfOther, []string{id, other}},
		"other directory": {func(x *o) { x.BucketClusterID, x.DataClusterID, x.DataNode = id, other, 1 }, metadata.ErrDataOfOther, []string{id, other}},
		"other node": {func(x *o) { x.BucketClusterID, x.DataClusterID, x.DataNode = id, id, 2 }, metadata.ErrDataOfOtherNode,
			[]string{"node 2", "--node-id 1"}},
	} {
		if _, err := open(empty, tc.fn); !errors.Is(err, tc.want) || tc.want != nil && !oneLine(err, tc.says...) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func oneLine(err error, says ...string) bool {
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			return false
		}
	}
	return !strings.Contains(err.Error(), "\n")
}

// script makes every kind of change once or more, and describes what came of it. Faults must not change a word of it.
func script(t *testing.T, n *node, boots uint64) string {
	t.Helper()
	ctx := testContext(t)
	var out []string
	say := func(what string, err error, parts ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		out = append(out, what+" "+strings.Join(parts, " "))
	}
	say("confirm", n.ConfirmBucket(ctx))
	say("upgrade", n.UpgradeCluster(ctx, 2))
	_, err := n.RegisterNode(ctx, []metadata.StoreBoots{{StoreID: n.storeID, Boots: boots}})
	say("node", err)
	n.register(boots)
	topic, err := n.CreateTopic(ctx, metadata.TopicSpec{Name: "t", ID: record.TopicID{1}, Partitions: [][]record.NodeID{{1}, {1}}})
	say("create", err)
	grown, err := n.CreatePartitions(ctx, topic.ID, 2, [][]record.NodeID{{1}})
	say("grow", err, itoa(len(grown.Partitions)))
	count := func(m map[string]string) error { m["retention.ms"] += "1"; return nil }
	altered, err := n.AlterTopicConfig(ctx, topic.ID, count)
	say("alter", err, altered.Overrides["retention.ms"])
	_, err = n.AlterBrokerConfig(ctx, "", func(m map[string]string) error { m["log.retention.ms"] += "1"; return nil })
	say("alter broker", err)
	ids := []metadata.PartitionID{{Topic: topic.ID}, {Topic: topic.ID, Index: 1}, {Topic: topic.ID, Index: 2}}
	ls, err := n.TakeOver(ctx, n.session, ids)
	say("take over", err, itoa(len(ls)))
	l := ls[0]
	var head metadata.Head
	for i := range record.Offset(4) {
		head, err = seal(ctx, n.Store, l, metadata.UUID{byte(i + 1)}, metadata.OffsetRange{Base: i * 10, End: i*10 + 10}, 5)
		say("seal", err, itoa(int(head.TieredEnd)), itoa(int(head.TieredBytes)), itoa(int(head.Count)))
	}
	rev, err := n.PutIntent(ctx, l, metadata.Intent{Attempt: metadata.UUID{9}, Kind: metadata.IntentPage, Started: time.UnixMilli(1)})
	say("intent", err)
	head, err = n.Fold(ctx, l, metadata.FoldCommit{
		IntentRev: rev, Attempt: metadata.UUID{9}, HeadRev: head.Rev, FoldedEnd: 20, Folded: 2, Pages: [][]byte{make([]byte, 16)},
	})
	say("fold", err, itoa(int(head.Count)), itoa(int(head.FoldedEnd)))
	head, err = n.AdvanceLogStart(ctx, l, 30, nil)
	say("advance", err, itoa(int(head.LogStart)))
	head, err = n.DropSegments(ctx, l, []metadata.DroppedSegment{{Base: 20, Attempt: metadata.UUID{3}, Bytes: 5}}, 0)
	say("drop", err, itoa(int(head.Count)), itoa(int(head.TieredBytes)))
	isr, err := n.ChangeISR(ctx, l, metadata.ISRChange{From: l.ISR, Add: l.ISR.Members, MinISR: 1, HWFloor: 33})
	say("isr", err, itoa(int(isr.HWFloor)))
	next, err := n.TransferLeadership(ctx, l, isr, isr.Members[0])
	say("transfer", err, itoa(int(next.Epoch)))
	first, _, err := n.AllocateProducerIDs(ctx)
	say("producer ids", err, itoa(int(first)))
	_, err = n.Elect(ctx, n.session, "role")
	say("elect", err)
	scriptGroups(n, say)
	scriptGarbage(n, ls[1], say)
	return strings.Join(out, "\n")
}

// scriptGarbage is script's part about what is given up: an intent, and a topic with its objects.
func scriptGarbage(n *node, l metadata.Leadership, say func(string, error, ...string)) {
	ctx := testContext(n.t)
	i := metadata.Intent{Attempt: metadata.UUID{7}, Kind: metadata.IntentSeal, Started: time.UnixMilli(1)}
	var err error
	i.Rev, err = n.PutIntent(ctx, l, i)
	say("intent", err)
	say("claim", n.ClaimIntent(ctx, l.ID, i, "test"))
	other, err := n.CreateTopic(ctx, metadata.TopicSpec{Name: "gone", ID: record.TopicID{2}, Partitions: [][]record.NodeID{{1}}})
	say("create", err)
	taken, err := n.TakeOver(ctx, n.session, []metadata.PartitionID{{Topic: other.ID}})
	say("take over", err)
	_, err = seal(ctx, n.Store, taken[0], metadata.UUID{8}, metadata.OffsetRange{Base: 0, End: 5}, 1)
	say("seal", err)
	_, err = n.DeleteTopic(ctx, other.ID)
	say("delete", err)
	_, err = n.DrainDeleting(ctx, drainOptions())
	say("drain", err)
	records, err := n.GCRecords(ctx)
	say("garbage", err, itoa(len(records)))
	say("remove", n.DeleteGCRecord(ctx, records[0]))
}

// scriptGroups is script's part about groups. The shard is kept: a late copy of its taking would take it again, which its owner finds
// out by the image.
func scriptGroups(n *node, say func(string, error, ...string)) {
	ctx := testContext(n.t)
	shards, err := n.FixShards(ctx, 50)
	say("shards", err, itoa(int(shards)))
	co, err := n.TakeShard(ctx, n.session, 3)
	say("take shard", err)
	one := metadata.Offsets{ChunkID: metadata.ChunkOf(record.TopicID{1}, 0), List: []metadata.CommittedOffset{committed(0, 1)}}
	state, err := n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "g", State: []byte("a"), Offsets: []metadata.OffsetsChange{metadata.OffsetsChange(one)}}, {ID: "h", State: []byte("b")}})
	say("groups", err)
	one.Rev, one.List = state, []metadata.CommittedOffset{committed(0, 2)}
	one.Rev, err = n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "g", Rev: state, Offsets: []metadata.OffsetsChange{metadata.OffsetsChange(one)}}})
	say("commit", err)
	one.List = nil
	_, err = n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "g", Rev: state, Offsets: []metadata.OffsetsChange{metadata.OffsetsChange(one)}}})
	say("delete offsets", err)
	_, err = n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "g", Rev: state, Pages: 1, Delete: true}})
	say("delete group", err)
	next, err := n.TakeShard(ctx, n.session, 4)
	say("take another shard", err)
	for i, r := range n.ChangeShards(ctx, []metadata.ShardChange{
		{Coordination: co, Groups: []metadata.GroupChange{{ID: "i", State: []byte("a")}}},
		{Coordination: next, Groups: []metadata.GroupChange{{ID: "k", State: []byte("b")}}},
	}) {
		say("groups of two shards", r.Err, itoa(i))
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// dump is the state that a script left behind, but for what differs from run to run: each key with how often it was put.
func dump(t *testing.T, kv metadata.KV, p string) string {
	t.Helper()
	res, err := kv.Range(testContext(t), metadata.RangeRequest{Key: p, End: metadata.PrefixEnd(p)})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kv := range res.KVs {
		out = append(out, kv.Key[len(p):]+" v"+itoa(int(kv.Version)))
	}
	return strings.Join(out, "\n")
}

func testUnknownOutcomes(t *testing.T, h Harness) {
	run := func(name string, fate Fate, delay time.Duration) (string, int) {
		p := prefix(t)
		startNode(t, h, p, 5, func(o *metadata.Options) { o.Versions = metadata.VersionRange{Min: 1, Max: 1} })
		n := startNode(t, h, p, 1, func(o *metadata.Options) { o.Versions = metadata.VersionRange{Min: 1, Max: 2} })
		n.kv.Delay = delay
		changes := map[string]bool{}
		n.kv.SetDecide(func(txn metadata.Txn) Fate {
			var b strings.Builder
			for _, op := range txn.Then {
				b.WriteString(op.Key + string(op.Value))
			}
			if changes[b.String()] {
				return Well
			}
			changes[b.String()] = true
			return fate
		})
		said := script(t, n, 1)
		n.kv.SetDecide(nil)
		n.kv.Settle()
		return said + "\n" + dump(t, n.kv, p), len(changes)
	}
	want, clean := run("well", Well, 0)
	for _, tc := range []struct {
		name  string
		fate  Fate
		delay time.Duration
	}{
		{"lost request", LostRequest, 0}, {"lost reply", LostReply, 0}, {"unavailable", Refused, 0},
		{"late, before the next", Late, time.Millisecond}, {"late, behind the next", Late, 80 * time.Millisecond},
	} {
		got, n := run(tc.name, tc.fate, tc.delay)
		if got != want {
			t.Errorf("%s changed the outcome to\n%s\nwant\n%s", tc.name, got, want)
		}
		if n < 30 || n != clean {
			t.Errorf("%s: %d changes, %d without faults", tc.name, n, clean)
		}
		t.Logf("%s: %d changes, each sent at least twice", tc.name, n)
	}
	testUndecided(t, h)
}

// testUndecided: who gives up waiting hears that the outcome is unknown, and asking for the same again finds it.
func testUndecided(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1).register(1)
	topic := n.create("t", []record.NodeID{1})
	l := n.take(metadata.PartitionID{Topic: topic.ID})
	attempt := metadata.NewUUID()
	rev, err := n.PutIntent(testContext(t), l, metadata.Intent{Attempt: attempt, Kind: metadata.IntentSeal})
	if err != nil {
		t.Fatal(err)
	}
	commit := metadata.SegmentCommit{IntentRev: rev, Attempt: attempt, Range: metadata.OffsetRange{Base: 0, End: 9}, Bytes: 3, Entry: entry(attempt)}
	for _, fate := range []Fate{LostRequest, LostReply} {
		n.kv.SetDecide(func(metadata.Txn) Fate { return fate })
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_, err = n.CommitSegment(ctx, l, commit)
		cancel()
		if fate == LostRequest && !errors.Is(err, metadata.ErrUnknown) {
			t.Errorf("undecided commit: %v", err)
		}
	}
	n.kv.SetDecide(nil)
	head, err := n.CommitSegment(testContext(t), l, commit)
	if err != nil || head.TieredEnd != 9 || head.TieredBytes != 3 || head.Count != 1 {
		t.Errorf("the same commit again: %+v, %v", head, err)
	}
}
