// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

func testContextFor(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func testLeading(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1).register(1)
	topic := n.create("a", []record.NodeID{1})
	id := metadata.PartitionID{Topic: topic.ID}
	l := n.take(id)
	if l.Epoch != 0 || l.Node != 1 || l.Head.Rev != l.LeaderRev || len(l.ISR.Members) != 1 || l.ISR.Members[0].StoreID != n.storeID {
		t.Errorf("first leadership: %+v", l)
	}
	if again := n.take(id); again.LeaderRev != l.LeaderRev || again.Epoch != 0 {
		t.Errorf("taking what one has: %+v", again)
	}
	// A restart: the same directory, another registration.
	old := n.session
	n.register(2)
	<-old.Lost()
	if old.Alive() || old.Err() == nil {
		t.Error("a session that was replaced lives on")
	}
	second := n.take(id)
	if second.Epoch != 1 || second.LeaderRev <= l.LeaderRev || second.ISR.Members[0].Incarnation != n.session.Incarnation() {
		t.Errorf("after a restart: %+v", second)
	}
	if _, err := n.AdvanceLogStart(testContext(t), l, 1, nil); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("a change under the leadership before the restart: %v", err)
	}
	if _, err := n.TakeOver(testContext(t), old, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrSessionLost) {
		t.Errorf("taking over with a lost session: %v", err)
	}
	var pe *metadata.PartitionError
	_, err := n.TakeOver(testContext(t), n.session, []metadata.PartitionID{{Topic: topic.ID, Index: 9}})
	if !errors.Is(err, metadata.ErrUnknownPartition) || !errors.As(err, &pe) || pe.ID.Index != 9 {
		t.Errorf("taking over no partition: %v", err)
	}
}

// lateChanges is everything that a leader may try after another one, now, has taken over. head is the revision of the head in force.
func lateChanges(ctx context.Context, a *node, old, now metadata.Leadership, commit metadata.SegmentCommit, head metadata.Revision) map[string]func() error {
	member, _ := now.ISR.Member(2)
	return map[string]func() error{
		"commit": func() error {
			_, err := a.CommitSegment(ctx, old, commit)
			return err
		},
		"intent": func() error {
			_, err := a.PutIntent(ctx, old, metadata.Intent{Attempt: metadata.NewUUID(), Kind: metadata.IntentSeal})
			return err
		},
		"advance": func() error { _, err := a.AdvanceLogStart(ctx, old, 5, nil); return err },
		"drop": func() error {
			_, err := a.DropSegments(ctx, old, []metadata.DroppedSegment{{Attempt: commit.Attempt}}, 0)
			return err
		},
		"drop pages": func() error { _, err := a.DropPages(ctx, old, metadata.PageDrop{HeadRev: head}); return err },
		"fold": func() error {
			_, err := a.Fold(ctx, old, metadata.FoldCommit{HeadRev: head, FoldedEnd: 10})
			return err
		},
		"shrink": func() error {
			_, err := a.ChangeISR(ctx, old, metadata.ISRChange{From: old.ISR, Remove: []record.NodeID{2}, MinISR: 1})
			return err
		},
		"expand": func() error {
			_, err := a.ChangeISR(ctx, old, metadata.ISRChange{From: now.ISR, Add: []metadata.ISRMember{{Node: 1}}, MinISR: 1})
			return err
		},
		"transfer": func() error { _, err := a.TransferLeadership(ctx, old, now.ISR, member); return err },
	}
}

func testFencing(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	topic := a.create("t", []record.NodeID{1, 2})
	id := metadata.PartitionID{Topic: topic.ID}
	old := a.take(id)
	a.seal(old, metadata.OffsetRange{Base: 0, End: 10}, 100)
	ctx := testContext(t)
	waiting := metadata.NewUUID()
	rev, err := a.PutIntent(ctx, old, metadata.Intent{Attempt: waiting, Kind: metadata.IntentSeal, Range: metadata.OffsetRange{Base: 10, End: 20}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TakeOver(ctx, b.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrLeaderAlive) {
		t.Fatalf("taking over from a live leader: %v", err)
	}
	if err := a.session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	l := b.take(id)
	if l.Epoch != 1 || l.Head.TieredEnd != 10 || l.Head.TieredBytes != 100 {
		t.Fatalf("the new leader got %+v", l)
	}
	before, err := b.ReadHead(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	late := metadata.SegmentCommit{IntentRev: rev, Attempt: waiting, Range: metadata.OffsetRange{Base: 10, End: 20}, Entry: entry(waiting)}
	for name, try := range lateChanges(ctx, a, old, l, late, before.Rev) {
		if err := try(); !errors.Is(err, metadata.ErrFenced) {
			t.Errorf("%s by the old leader: %v", name, err)
		}
	}
	if after, err := b.ReadHead(ctx, id); err != nil || after.Rev != before.Rev {
		t.Errorf("the head moved from %+v to %+v, %v", before, after, err)
	}
	if _, head := b.seal(l, metadata.OffsetRange{Base: 10, End: 15}, 7); head.TieredEnd != 15 || head.TieredBytes != 107 || head.Count != 2 ||
		len(head.EpochChain) != 2 || head.EpochChain[1] != (record.EpochStart{Epoch: 1, Start: 10}) {
		t.Errorf("the new leader's commit: %+v", head)
	}
}

func testEligible(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	ctx := testContext(t)
	topic, err := a.CreateTopic(ctx, metadata.TopicSpec{
		Name: "t", Partitions: [][]record.NodeID{{1, 2, 3}}, Overrides: map[string]string{"min.insync.replicas": "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := metadata.PartitionID{Topic: topic.ID}
	l := a.take(id)
	if len(l.ISR.Members) != 2 || len(l.ISR.ELR) != 0 {
		t.Fatalf("first ISR: %+v (node 3 is not registered)", l.ISR)
	}
	c := startNode(t, h, p, 3).register(1)
	close := func(n *node) {
		t.Helper()
		if err := n.session.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	close(a)
	if _, err := c.TakeOver(ctx, c.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrNotEligible) {
		t.Errorf("a replica out of sync takes over: %v", err)
	}
	l = b.take(id)
	if len(l.ISR.Members) != 1 || len(l.ISR.ELR) != 1 || l.ISR.ELR[0] != (metadata.ELRMember{Node: 1, StoreID: a.storeID}) {
		t.Fatalf("below the minimum the removed leader is eligible: %+v", l.ISR)
	}
	close(b)
	// Node 1 comes back without its disk, then with it.
	kept := a.storeID
	a.storeID = metadata.NewUUID()
	a.register(1)
	if _, err := a.TakeOver(ctx, a.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrNotEligible) {
		t.Errorf("a replica that lost its disk takes over: %v", err)
	}
	close(a)
	a.storeID = kept
	a.register(2)
	l = a.take(id)
	if l.Epoch != 2 || len(l.ISR.Members) != 1 || l.ISR.Members[0].Node != 1 || len(l.ISR.ELR) != 1 || l.ISR.ELR[0].Node != 2 {
		t.Errorf("takeover out of the eligible replicas: %+v", l)
	}
}

func testTakeOverMany(t *testing.T, h Harness) {
	p := prefix(t)
	n, other := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	topics := make([]*metadata.Topic, 3)
	var ids []metadata.PartitionID
	for i := range topics {
		replicas := make([][]record.NodeID, 20)
		for k := range replicas {
			replicas[k] = []record.NodeID{1, 2}
		}
		topics[i] = n.create(fmt.Sprint("t", i), replicas...)
		for k := range topics[i].Partitions {
			ids = append(ids, metadata.PartitionID{Topic: topics[i].ID, Index: int32(k)})
		}
	}
	taken := metadata.PartitionID{Topic: topics[1].ID, Index: 7}
	other.take(taken)
	got, err := n.TakeOver(testContext(t), n.session, ids)
	var pe *metadata.PartitionError
	if !errors.Is(err, metadata.ErrLeaderAlive) || !errors.As(err, &pe) || pe.ID != taken {
		t.Errorf("the one that is led already: %v", err)
	}
	if len(got) != len(ids)-1 {
		t.Errorf("took %d of %d", len(got), len(ids))
	}
	seen := map[metadata.PartitionID]bool{}
	for _, l := range got {
		seen[l.ID] = true
		if head, err := n.ReadHead(testContext(t), l.ID); err != nil || head.Rev != l.Head.Rev {
			t.Errorf("%s: head %+v, %v, leadership says %d", l.ID, head, err, l.Head.Rev)
		}
	}
	if len(seen) != len(got) || seen[taken] {
		t.Error("a partition was taken twice, or that of the other")
	}
}

func testISR(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	topic := a.create("t", []record.NodeID{1, 2})
	id := metadata.PartitionID{Topic: topic.ID}
	l := a.take(id)
	ctx := testContext(t)
	was, _ := l.ISR.Member(2)
	if _, err := a.ChangeISR(ctx, l, metadata.ISRChange{From: l.ISR, Remove: []record.NodeID{2}, Gone: true, MinISR: 2}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("shrinking out a member as gone that is registered: %v", err)
	}
	isr, err := a.ChangeISR(ctx, l, metadata.ISRChange{From: l.ISR, Remove: []record.NodeID{2}, MinISR: 2, HWFloor: 17})
	if err != nil || len(isr.Members) != 1 || len(isr.ELR) != 1 || isr.HWFloor != 17 {
		t.Fatalf("shrink: %+v, %v", isr, err)
	}
	if _, err := a.ChangeISR(ctx, l, metadata.ISRChange{From: l.ISR, Add: []metadata.ISRMember{was}, MinISR: 2}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("expanding from an old state: %v", err)
	}
	b.register(2)
	if _, err := a.ChangeISR(ctx, l, metadata.ISRChange{From: isr, Add: []metadata.ISRMember{was}, MinISR: 2}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("expanding by an incarnation that is gone: %v", err)
	}
	now := metadata.ISRMember{Node: 2, Incarnation: b.session.Incarnation(), StoreID: b.storeID}
	isr, err = a.ChangeISR(ctx, l, metadata.ISRChange{From: isr, Add: []metadata.ISRMember{now}, MinISR: 2, HWFloor: 3})
	if err != nil || len(isr.Members) != 2 || len(isr.ELR) != 0 || isr.HWFloor != 17 {
		t.Fatalf("expand: %+v, %v", isr, err)
	}
	// ISR changes do not touch what a running upload compares.
	if _, head := a.seal(l, metadata.OffsetRange{Base: 0, End: 3}, 1); head.TieredEnd != 3 {
		t.Errorf("commit after ISR changes: %+v", head)
	}
	next, err := a.TransferLeadership(ctx, l, isr, now)
	if err != nil || next.Epoch != 1 || next.Node != 2 {
		t.Fatalf("transfer: %+v, %v", next, err)
	}
	if _, err := a.AdvanceLogStart(ctx, l, 1, nil); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("the one who handed over goes on: %v", err)
	}
	if got := b.take(id); got.Epoch != 1 || got.LeaderRev != next.Rev || got.Head.TieredEnd != 3 {
		t.Errorf("the target got %+v", got)
	}
}

// testLeadersTogether changes and hands over many partitions at once: one that is refused takes no other with it, and an answer that is lost
// changes nothing.
func testLeadersTogether(t *testing.T, h Harness) {
	const partitions = 70 // more than one transaction has
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	replicas := make([][]record.NodeID, partitions)
	for i := range replicas {
		replicas[i] = []record.NodeID{1, 2}
	}
	topic, ctx := a.create("t", replicas...), testContext(t)
	led := make([]metadata.Leadership, partitions)
	changes, moves := make([]metadata.LedISRChange, partitions), make([]metadata.Transfer, partitions)
	for i := range led {
		led[i] = a.take(metadata.PartitionID{Topic: topic.ID, Index: int32(i)})
		changes[i] = metadata.LedISRChange{Leadership: led[i], Change: metadata.ISRChange{From: led[i].ISR, MinISR: 1, HWFloor: record.Offset(i)}}
	}
	const stale, gone, fenced = 3, 40, 41
	changes[stale].Change.From.Rev--
	to, _ := led[0].ISR.Member(2)
	for i, r := range a.ChangeISRs(ctx, changes) {
		switch {
		case i == stale:
			if !errors.Is(r.Err, metadata.ErrConflict) {
				t.Errorf("a change from an older set: %v", r.Err)
			}
			r.State = led[i].ISR
		case r.Err != nil || r.State.Rev <= led[i].ISR.Rev || r.State.HWFloor != record.Offset(i):
			t.Errorf("change %d: %+v, %v", i, r.State, r.Err)
		}
		moves[i] = metadata.Transfer{Leadership: led[i], ISR: r.State, To: to}
	}
	moves[stale].ISR = changes[0].Change.From // of another partition
	moves[gone].To.Incarnation--
	moves[fenced].Leadership.LeaderRev--
	want := map[int]error{stale: metadata.ErrConflict, gone: metadata.ErrConflict, fenced: metadata.ErrFenced}
	lost := false
	a.kv.SetDecide(func(metadata.Txn) Fate {
		if lost {
			return Well
		}
		lost = true
		return LostReply
	})
	var last metadata.Revision
	for i, r := range a.TransferLeaderships(ctx, moves) {
		if last = max(last, r.Next.Rev); !errors.Is(r.Err, want[i]) || r.Err == nil && (r.Next.Epoch != 1 || r.Next.Rev <= led[i].LeaderRev) {
			t.Errorf("handing over %d: %+v, %v; want %v", i, r.Next, r.Err, want[i])
		}
	}
	b.wait(last)
	for i := range led {
		l, ok := b.Image().Handed(b.session, led[i].ID)
		if refused := want[i] != nil; ok == refused {
			t.Errorf("partition %d was handed over: %v", i, ok)
		} else if ok {
			if read := b.take(led[i].ID); !reflect.DeepEqual(l, read) {
				t.Errorf("the image says %+v, the store %+v", l, read)
			}
		}
	}
}

func testManifest(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1).register(1)
	topic := n.create("t", []record.NodeID{1})
	id := metadata.PartitionID{Topic: topic.ID}
	l := n.take(id)
	ctx := testContext(t)
	var attempts []metadata.UUID
	for i := range record.Offset(100) {
		a, _ := n.seal(l, metadata.OffsetRange{Base: i * 10, End: i*10 + 10}, 5)
		attempts = append(attempts, a)
	}
	head, segs, _, err := n.ReadManifest(ctx, id)
	if err != nil || head.Count != 100 || head.TieredEnd != 1000 || head.TieredBytes != 500 || len(segs) != 100 || segs[99].Base != 990 ||
		string(segs[3].Value) != string(entry(attempts[3])) {
		t.Fatalf("manifest: %+v, %d segments, %v", head, len(segs), err)
	}
	if left, err := n.Intents(ctx, id); err != nil || len(left) != 0 {
		t.Errorf("intents left: %v, %v", left, err)
	}
	if _, err := seal(ctx, n.Store, l, metadata.NewUUID(), metadata.OffsetRange{Base: 999, End: 1005}, 1); !errors.Is(err, metadata.ErrTieredEndMoved) {
		t.Errorf("an overlapping commit: %v", err)
	}
	if again, err := n.CommitSegment(ctx, l, metadata.SegmentCommit{
		Attempt: attempts[99], Range: metadata.OffsetRange{Base: 990, End: 1000}, Bytes: 5, Entry: entry(attempts[99]),
	}); err != nil || again.Rev != head.Rev {
		t.Errorf("committing again what is committed: %+v, %v", again, err)
	}
	page := append(attempts[0][:], "page"...)
	fold := metadata.NewUUID()
	rev, err := n.PutIntent(ctx, l, metadata.Intent{Attempt: fold, Kind: metadata.IntentPage})
	if err != nil {
		t.Fatal(err)
	}
	f := metadata.FoldCommit{IntentRev: rev, Attempt: fold, HeadRev: head.Rev - 1, FoldedEnd: 950, Folded: 95, Pages: [][]byte{page}}
	if _, err := n.Fold(ctx, l, f); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("folding an old head: %v", err)
	}
	f.HeadRev = head.Rev
	head, err = n.Fold(ctx, l, f)
	if err != nil || head.FoldedEnd != 950 || head.Count != 5 || len(head.Pages) != 1 || head.TieredBytes != 500 {
		t.Fatalf("fold: %+v, %v", head, err)
	}
	_, segs, _, err = n.ReadManifest(ctx, id)
	if err != nil || len(segs) != 5 || segs[0].Base != 950 {
		t.Errorf("after the fold %d segments, %v", len(segs), err)
	}
	testDropping(t, n, l, attempts)
}

func testDropping(t *testing.T, n *node, l metadata.Leadership, attempts []metadata.UUID) {
	ctx := testContext(t)
	drop := []metadata.DroppedSegment{{Base: 950, Attempt: attempts[95], Keys: []string{"k"}, Bytes: 5}}
	if _, err := n.DropSegments(ctx, l, drop, time.Hour); !errors.Is(err, metadata.ErrRefused) {
		t.Errorf("dropping above the log start: %v", err)
	}
	head, err := n.AdvanceLogStart(ctx, l, 965, nil)
	if err != nil || head.LogStart != 965 || head.TieredEnd != 1000 {
		t.Fatalf("advance: %+v, %v", head, err)
	}
	if back, err := n.AdvanceLogStart(ctx, l, 900, nil); err != nil || back.Rev != head.Rev {
		t.Errorf("advancing backwards: %+v, %v", back, err)
	}
	for range 2 {
		if head, err = n.DropSegments(ctx, l, drop, time.Hour); err != nil || head.TieredBytes != 495 || head.Count != 4 {
			t.Fatalf("drop, and again: %+v, %v", head, err)
		}
	}
	if head, err = n.DropPages(ctx, l, metadata.PageDrop{HeadRev: head.Rev, Bytes: 475, Garbage: []metadata.GCRecord{{Attempt: attempts[0], Reason: "page"}}}); err != nil ||
		len(head.Pages) != 0 || head.TieredBytes != 20 {
		t.Fatalf("drop pages: %+v, %v", head, err)
	}
	records, err := n.GCRecords(ctx)
	if err != nil || len(records) != 2 {
		t.Fatalf("garbage: %+v, %v", records, err)
	}
	for _, g := range records {
		if g.Attempt == attempts[95] && (len(g.Keys) != 1 || g.Reason != "retention" || time.Until(g.NotBefore) < 50*time.Minute) {
			t.Errorf("garbage of the dropped segment: %+v", g)
		}
		if err := n.DeleteGCRecord(ctx, g); err != nil {
			t.Error(err)
		}
	}
	// What was never tiered is passed over.
	epochs := append(slices.Clone(head.EpochChain), record.EpochStart{Epoch: 70, Start: 1100}, record.EpochStart{Epoch: 71, Start: 1500}, record.EpochStart{Epoch: 72, Start: 2000})
	head, err = n.AdvanceLogStart(ctx, l, 2000, epochs)
	if err != nil || head.TieredEnd != 2000 || head.LogStart != 2000 || len(head.EpochChain) != 1 || head.EpochChain[0].Epoch != 71 {
		t.Errorf("log start beyond the tiered end: %+v, %v", head, err)
	}
	if _, head := n.seal(l, metadata.OffsetRange{Base: 2000, End: 2001}, 1); head.TieredEnd != 2001 {
		t.Errorf("a seal at the moved tiered end: %+v", head)
	}
}

func testIntentContention(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1).register(1)
	topic := n.create("t", []record.NodeID{1})
	id := metadata.PartitionID{Topic: topic.ID}
	l := n.take(id)
	ctx := testContext(t)
	attempt := metadata.NewUUID()
	i := metadata.Intent{Attempt: attempt, Kind: metadata.IntentSeal, Keys: []string{"k"}, Range: metadata.OffsetRange{Base: 0, End: 5}}
	var err error
	if i.Rev, err = n.PutIntent(ctx, l, i); err != nil {
		t.Fatal(err)
	}
	i.UploadID = "u"
	if i.Rev, err = n.PutIntent(ctx, l, i); err != nil {
		t.Fatal(err)
	}
	all, err := n.Intents(ctx, id)
	if err != nil || len(all) != 1 || all[0].UploadID != "u" || all[0].Attempt != attempt || all[0].Rev != i.Rev {
		t.Fatalf("intents: %+v, %v", all, err)
	}
	if err := n.ClaimIntent(ctx, id, all[0], "test"); err != nil {
		t.Fatal(err)
	}
	commit := metadata.SegmentCommit{IntentRev: i.Rev, Attempt: attempt, Range: i.Range, Entry: entry(attempt)}
	if _, err := n.CommitSegment(ctx, l, commit); !errors.Is(err, metadata.ErrIntentClaimed) {
		t.Errorf("commit of a claimed upload: %v", err)
	}
	i.Rev = 0
	if _, err := n.PutIntent(ctx, l, i); !errors.Is(err, metadata.ErrIntentClaimed) {
		t.Errorf("announcing a claimed attempt again: %v", err)
	}
	b := metadata.NewUUID()
	if _, err := seal(ctx, n.Store, l, b, i.Range, 1); err != nil {
		t.Fatal(err)
	}
	if err := n.ClaimIntent(ctx, id, metadata.Intent{Attempt: b, Rev: i.Rev + 1}, "test"); !errors.Is(err, metadata.ErrIntentClaimed) {
		t.Errorf("claiming what was committed: %v", err)
	}
}

func testDeleting(t *testing.T, h Harness) {
	p := prefix(t)
	n := startNode(t, h, p, 1).register(1)
	topic := n.create("t", []record.NodeID{1}, []record.NodeID{1})
	id := metadata.PartitionID{Topic: topic.ID}
	l := n.take(id)
	ctx := testContext(t)
	for i := range record.Offset(60) {
		n.seal(l, metadata.OffsetRange{Base: i, End: i + 1}, 1)
	}
	pageOf := metadata.NewUUID()
	rev, err := n.PutIntent(ctx, l, metadata.Intent{Attempt: pageOf, Kind: metadata.IntentPage})
	if err != nil {
		t.Fatal(err)
	}
	head, err := n.ReadHead(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Fold(ctx, l, metadata.FoldCommit{IntentRev: rev, Attempt: pageOf, HeadRev: head.Rev, FoldedEnd: 1, Folded: 1, Pages: [][]byte{pageOf[:]}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.PutIntent(ctx, l, metadata.Intent{Attempt: metadata.NewUUID(), Kind: metadata.IntentSeal, Keys: []string{"unfinished"}}); err != nil {
		t.Fatal(err)
	}
	rev, err = n.DeleteTopic(ctx, topic.ID)
	if err != nil {
		t.Fatal(err)
	}
	n.wait(rev)
	if got := n.Image().Topic("t"); got != nil {
		t.Errorf("the name is still there: %+v", got)
	}
	if got := n.Image().TopicByID(topic.ID); got == nil || !got.Deleting {
		t.Errorf("the topic is not being deleted: %+v", got)
	}
	if _, err := n.DeleteTopic(ctx, topic.ID); !errors.Is(err, metadata.ErrUnknownTopic) {
		t.Errorf("deleting it again: %v", err)
	}
	again := n.create("t", []record.NodeID{1})
	if again.ID == topic.ID {
		t.Error("a topic made under the name has the old id")
	}
	if more, err := n.DrainDeleting(ctx, drainOptions()); err != nil || more {
		t.Fatalf("drain: %v, %v", more, err)
	}
	if _, err := n.AdvanceLogStart(ctx, l, 1, nil); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("the leader of a deleted topic goes on: %v", err)
	}
	if _, err := n.TakeOver(ctx, n.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrUnknownTopic) {
		t.Errorf("taking over a deleted topic: %v", err)
	}
	records, err := n.GCRecords(ctx)
	if err != nil || len(records) != 61 { // 59 entries, the page, the unfinished upload
		t.Errorf("%d garbage records, %v", len(records), err)
	}
	res, err := n.kv.Range(ctx, metadata.RangeRequest{Key: p, End: metadata.PrefixEnd(p)})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range res.KVs {
		if strings.Contains(kv.Key, topic.ID.Hex()) {
			t.Errorf("left behind: %s", kv.Key)
		}
	}
	eventually(t, "the image forgets the topic", func() bool { return n.Image().TopicByID(topic.ID) == nil && n.Image().TopicCount() == 1 })
}
