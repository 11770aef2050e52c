// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// txnNode is a node with the shards of a transactional id and of a group.
type txnNode struct {
	*node
	co, group metadata.Coordination
}

func startTxnNode(t *testing.T, h Harness, id, group string) *txnNode {
	t.Helper()
	n := &txnNode{node: startNode(t, h, prefix(t), 1).register(1)}
	shards, err := n.FixShards(testContext(t), 50)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the number of shards", func() bool { return n.Image().Shards() == shards })
	n.co = n.takeShard(metadata.ShardOf(id, shards))
	n.group = n.co
	if s := metadata.ShardOf(group, shards); s != n.co.Shard {
		n.group = n.takeShard(s)
	}
	return n
}

func (n *txnNode) changeTxn(c metadata.TxnChange) metadata.Revision {
	n.t.Helper()
	rev, err := n.ChangeTxn(testContext(n.t), n.co, c)
	if err != nil {
		n.t.Fatal(err)
	}
	return rev
}

func (n *txnNode) txns() map[string]metadata.TxnState {
	n.t.Helper()
	all := map[string]metadata.TxnState{}
	if err := n.LoadTxns(testContext(n.t), n.co, func(s metadata.TxnState) error {
		all[s.ID] = s
		return nil
	}); err != nil {
		n.t.Fatal(err)
	}
	return all
}

func testTxns(t *testing.T, h Harness) {
	const id = "t/%ü"
	n, ctx := startTxnNode(t, h, id, id), testContext(t)
	if s, err := n.ReadTxn(ctx, id); err != nil || s.Rev != 0 {
		t.Errorf("an id that nobody used: %+v, %v", s, err)
	}
	if _, err := n.ConfirmTxn(ctx, n.co, id, 0); err != nil {
		t.Errorf("that there is none: %v", err)
	}
	first := n.changeTxn(metadata.TxnChange{ID: id, Value: []byte("one")})
	for what, rev := range map[string]metadata.Revision{"none": 0, "another": first - 1} {
		if _, err := n.ChangeTxn(ctx, n.co, metadata.TxnChange{ID: id, Rev: rev, Value: []byte("x")}); !errors.Is(err, metadata.ErrTxnChanged) {
			t.Errorf("a change that was decided on %s: %v", what, err)
		}
		if _, err := n.ConfirmTxn(ctx, n.co, id, rev); !errors.Is(err, metadata.ErrTxnChanged) {
			t.Errorf("confirming %s: %v", what, err)
		}
	}
	if at, err := n.ConfirmTxn(ctx, n.co, id, first); err != nil || at < first {
		t.Errorf("confirmed at %d, %v", at, err)
	}
	second := n.changeTxn(metadata.TxnChange{ID: id, Rev: first, Value: []byte("two")})
	n.changeTxn(metadata.TxnChange{ID: "other", Value: []byte("x")})
	if s, err := n.ReadTxn(ctx, id); err != nil || string(s.Value) != "two" || s.Rev != second || s.ID != id {
		t.Errorf("read %+v, %v", s, err)
	}
	if all := n.txns(); len(all) != 2 || string(all[id].Value) != "two" || all[id].Rev != second {
		t.Errorf("loaded %+v", all)
	}
	n.changeTxn(metadata.TxnChange{ID: id, Rev: second, Delete: true})
	if all := n.txns(); len(all) != 1 {
		t.Errorf("loaded %+v after a deletion", all)
	}
	// Whoever lost the shard changes and confirms nothing.
	if err := n.ReleaseShard(ctx, n.co); err != nil {
		t.Fatal(err)
	}
	n.takeShard(n.co.Shard)
	_, cerr := n.ChangeTxn(ctx, n.co, metadata.TxnChange{ID: id, Value: []byte("late")})
	_, ferr := n.ConfirmTxn(ctx, n.co, id, 0)
	lerr := n.LoadTxns(ctx, n.co, func(metadata.TxnState) error { return nil })
	for what, err := range map[string]error{"change": cerr, "confirmation": ferr, "load": lerr} {
		if !errors.Is(err, metadata.ErrFenced) {
			t.Errorf("%s by the old owner: %v", what, err)
		}
	}
}

func (n *txnNode) pend(p *metadata.PendingChange) (metadata.Revision, error) {
	return n.PendOffsets(testContext(n.t), n.group, p)
}

func (n *txnNode) pending() []metadata.PendingOffsets {
	n.t.Helper()
	list, err := n.ReadPending(testContext(n.t), n.group, "g")
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

func testPendingOffsets(t *testing.T, h Harness) {
	n, ctx := startTxnNode(t, h, "t", "g"), testContext(t)
	one, two := record.TopicID{1}, record.TopicID{2}
	const far = metadata.OffsetsPerChunk
	txn := n.changeTxn(metadata.TxnChange{ID: "t", Value: []byte("ongoing")})
	group := n.changeGroups(n.group, metadata.GroupChange{ID: "g", State: []byte("gen 1"), Offsets: []metadata.OffsetsChange{
		{ChunkID: metadata.ChunkOf(one, 0), List: []metadata.CommittedOffset{committed(0, 1), committed(1, 1)}},
	}})
	change := func() *metadata.PendingChange {
		return &metadata.PendingChange{PendingOffsets: metadata.PendingOffsets{Group: "g", Producer: 7}, GroupRev: group, Txn: "t", TxnRev: txn}
	}
	p := change()
	p.Merge([]metadata.TopicOffsets{{Topic: two, List: pended(committed(0, 5))}, {Topic: one, List: pended(committed(1, 5))}})
	rev, err := n.pend(p)
	if err != nil {
		t.Fatal(err)
	}
	p.Rev = rev
	p.Merge([]metadata.TopicOffsets{{Topic: one, List: pended(committed(1, 6), committed(2, 6), committed(far, 7))}})
	for what, spoil := range map[string]func(*metadata.PendingChange) error{
		"of an old group":       func(p *metadata.PendingChange) error { p.GroupRev--; return metadata.ErrConflict },
		"of an old transaction": func(p *metadata.PendingChange) error { p.TxnRev--; return metadata.ErrTxnChanged },
		"over a newer one":      func(p *metadata.PendingChange) error { p.Rev--; return metadata.ErrConflict },
	} {
		bad := *p
		if want := spoil(&bad); true {
			if _, err := n.pend(&bad); !errors.Is(err, want) {
				t.Errorf("pending offsets %s: %v", what, err)
			}
		}
	}
	if p.Rev, err = n.pend(p); err != nil {
		t.Fatal(err)
	}
	got := n.pending()
	if len(got) != 1 || got[0].Producer != 7 || !got[0].Has(one, 1) || !got[0].Has(two, 0) || got[0].Has(one, 0) || !got[0].Has(one, far) || got[0].Rev != p.Rev {
		t.Fatalf("pending: %+v", got)
	}
	read, err := n.ReadPendingOf(ctx, 7, []string{"absent", "g"})
	if err != nil || len(read) != 2 || read[0].Rev != 0 || read[1].Rev != p.Rev {
		t.Fatalf("of the producer: %+v, %v", read, err)
	}
	if groups, newest, err := n.PendingGroups(ctx, n.group); err != nil || !slices.Equal(groups, []string{"g"}) || newest != pended(committed(0, 0))[0].Committed {
		t.Errorf("groups with pending offsets: %v, the newest of %v, %v", groups, newest, err)
	}
	n.testMoves(read, txn)
	if _, err := n.pend(p); !errors.Is(err, metadata.ErrTxnChanged) {
		t.Errorf("offsets for a transaction that is decided: %v", err)
	}
	// A group's coordinator that lost its shard puts and reads nothing.
	if err := n.ReleaseShard(ctx, n.group); err != nil {
		t.Fatal(err)
	}
	_, perr := n.pend(change())
	_, rerr := n.ReadPending(ctx, n.group, "g")
	if !errors.Is(perr, metadata.ErrFenced) || !errors.Is(rerr, metadata.ErrFenced) {
		t.Errorf("without the shard: %v, %v", perr, rerr)
	}
}

// pended are offsets that came later than those that are committed.
func pended(list ...metadata.CommittedOffset) []metadata.CommittedOffset {
	for i := range list {
		list[i].Committed++
	}
	return list
}

// testDropPending: what is pending for a group goes, of some partitions or altogether, of every producer, but for what came later.
func testDropPending(t *testing.T, h Harness) {
	n, ctx := startTxnNode(t, h, "t", "g"), testContext(t)
	one, two := record.TopicID{1}, record.TopicID{2}
	txn := n.changeTxn(metadata.TxnChange{ID: "t", Value: []byte("ongoing")})
	pend := func(producer int64, topics ...metadata.TopicOffsets) {
		p := &metadata.PendingChange{PendingOffsets: metadata.PendingOffsets{Group: "g", Producer: producer}, Txn: "t", TxnRev: txn}
		p.Merge(topics)
		if _, err := n.pend(p); err != nil {
			t.Fatal(err)
		}
	}
	pend(7, metadata.TopicOffsets{Topic: one, List: pended(committed(0, 1), committed(1, 1))}, metadata.TopicOffsets{Topic: two, List: pended(committed(0, 1))})
	pend(8, metadata.TopicOffsets{Topic: one, List: pended(committed(1, 2))})
	then := pended(committed(0, 1))[0].Committed
	for _, step := range []struct {
		partitions map[record.TopicID][]int32
		until      metadata.UnixMillis
		found      bool
		left       string
	}{
		{map[record.TopicID][]int32{}, then, false, "7:1/0 7:1/1 7:2/0 8:1/1 "},
		{nil, then - 1, false, "7:1/0 7:1/1 7:2/0 8:1/1 "},
		{map[record.TopicID][]int32{one: {1, 2}, {3}: {0}}, then - 1, false, "7:1/0 7:1/1 7:2/0 8:1/1 "},
		{map[record.TopicID][]int32{one: {1, 2}, {3}: {0}}, then, true, "7:1/0 7:2/0 "},
		{map[record.TopicID][]int32{one: {1}}, then, false, "7:1/0 7:2/0 "},
		{nil, then, true, ""},
		{nil, then, false, ""},
	} {
		found, err := n.DropPending(ctx, n.group, "g", step.partitions, step.until)
		left := ""
		for _, p := range n.pending() {
			for _, of := range p.Topics {
				for _, o := range of.List {
					left += fmt.Sprintf("%d:%d/%d ", p.Producer, of.Topic[0], o.Partition)
				}
			}
		}
		if err != nil || found != step.found || left != step.left {
			t.Errorf("dropping %v: %v, %v, left %q, want %v and %q", step.partitions, found, err, left, step.found, step.left)
		}
	}
	if err := n.ReleaseShard(ctx, n.group); err != nil {
		t.Fatal(err)
	}
	if _, err := n.DropPending(ctx, n.group, "g", nil, then); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("without the shard: %v", err)
	}
}

// testMoves decides the transaction with its offsets.
func (n *txnNode) testMoves(pending []metadata.PendingOffsets, txn metadata.Revision) {
	n.t.Helper()
	t, ctx := n.t, testContext(n.t)
	moves, all, err := n.NextMoves(ctx, pending, true)
	if err != nil || !all || len(moves) != 2 {
		t.Fatalf("moves %+v, %v, %v", moves, all, err)
	}
	decide := metadata.TxnChange{ID: "t", Rev: txn, Value: []byte("commit"), Moves: moves}
	// A commit comes first: the move would lose it. Of partition 2 it is not older than what is pending, and stays.
	state := n.load(n.group)
	i := slices.IndexFunc(state.offsets["g"], func(o metadata.Offsets) bool { return o.Topic == record.TopicID{1} })
	n.changeGroups(n.group, metadata.GroupChange{ID: "g", Rev: state.groups["g"].Rev, Offsets: []metadata.OffsetsChange{
		{ChunkID: metadata.ChunkOf(record.TopicID{1}, 0), Rev: state.offsets["g"][i].Rev, List: append([]metadata.CommittedOffset{committed(0, 2), committed(1, 2)}, pended(committed(2, 2))...)},
	}})
	if _, err := n.ChangeTxn(ctx, n.co, decide); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("a move over a newer commit: %v", err)
	}
	if s, _ := n.ReadTxn(ctx, "t"); string(s.Value) != "ongoing" {
		t.Errorf("half a decision: %q", s.Value)
	}
	if decide.Moves, _, err = n.NextMoves(ctx, pending, true); err != nil {
		t.Fatal(err)
	}
	n.changeTxn(decide)
	if left := n.pending(); len(left) != 0 {
		t.Errorf("still pending: %+v", left)
	}
	want := map[string]string{"1/0": "0:2 1:6 2:2 ", "1/1": "50:7 ", "2/0": "0:5 "}
	for _, o := range n.load(n.group).offsets["g"] {
		key, text := fmt.Sprintf("%d/%d", o.Topic[0], o.Chunk), ""
		for _, c := range o.List {
			text += fmt.Sprintf("%d:%d ", c.Partition, c.Offset)
		}
		if want[key] != text {
			t.Errorf("offsets %s are %q, want %q", key, text, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// testManyPendingOffsets: more than one change has room for moves in several, and an abort drops them all.
func testManyPendingOffsets(t *testing.T, h Harness) {
	n, ctx := startTxnNode(t, h, "t", "g"), testContext(t)
	const topics = 250
	for _, commit := range []bool{true, false} {
		state, err := n.ReadTxn(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		txn := n.changeTxn(metadata.TxnChange{ID: "t", Rev: state.Rev, Value: []byte("ongoing")})
		p := &metadata.PendingChange{PendingOffsets: metadata.PendingOffsets{Group: "g", Producer: 7}, Txn: "t", TxnRev: txn}
		for i := range topics {
			p.Merge([]metadata.TopicOffsets{{Topic: record.TopicID{byte(i), byte(i >> 8), 1}, List: []metadata.CommittedOffset{committed(3, record.Offset(i))}}})
		}
		if _, err := n.pend(p); err != nil {
			t.Fatal(err)
		}
		steps := 0
		for all := false; !all; steps++ {
			pending, err := n.ReadPendingOf(ctx, 7, []string{"g"})
			if err != nil {
				t.Fatal(err)
			}
			var moves []metadata.OffsetsMove
			if moves, all, err = n.NextMoves(ctx, pending, commit); err != nil {
				t.Fatal(err)
			}
			n.changeTxn(metadata.TxnChange{ID: "t", Rev: txn, Moves: moves})
		}
		if left := n.pending(); len(left) != 0 || commit != (steps > 2) {
			t.Errorf("commit %v: %d steps, left %+v", commit, steps, left)
		}
		if got := n.load(n.group).offsets["g"]; len(got) != topics {
			t.Errorf("commit %v: offsets of %d topics", commit, len(got))
		}
	}
}
