// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// TestTopicCreatedBeforeTheLeaseIsSureAgain: after an outage of the metadata store the first keepalive may come later than the
// first image. A topic that came meanwhile must be led all the same.
func TestTopicCreatedBeforeTheLeaseIsSureAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.server.SetOutage(true)
		n.await("the lease to be unsure", func() bool { return !n.broker.MayServe() })
		session := n.broker.session.Load()
		n.server.SetOutage(false)
		topic := n.create("t", nil)
		n.await("the image to have the topic", func() bool { return n.meta.Image().TopicByID(topic.ID) != nil })
		time.Sleep(time.Millisecond) // the roles were looked at
		if n.broker.session.Load() != session {
			t.Fatal("the registration was lost: this tests another thing")
		}
		n.led(topic).must(t, built(t, nobody, 1))
		if m := n.led(topic).Marks(); m.Replicas != 1 || m.InSync != 1 || m.MinISR != 1 {
			t.Errorf("%+v", m)
		}
	})
}

// TestImageThatComesBetween: what an image changes that arrives while the roles are looked at is looked at with that image, not with
// the one before, which does not have it.
func TestImageThatComesBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		b, err := New(Config{Node: n.broker.cfg.Node}, n.meta, n.broker.dbs, n.broker.tier)
		check(t, err)
		defer n.meta.Subscribe(b.imageChanged)()
		var topic *metadata.Topic
		read := func() *metadata.Image { // an image is read, and the next one is there before anything is done with it
			img := n.meta.Image()
			if topic == nil {
				topic = n.create("t", nil)
				n.await("the next image", func() bool { return n.meta.Image().TopicByID(topic.ID) != nil })
			}
			return img
		}
		b.toLookAt(read)
		if _, ids := b.toLookAt(read); !slices.Contains(ids, record.PartitionID{Topic: topic.ID}) {
			t.Error("the new topic was forgotten")
		}
	})
}

// TestTakeoverThatOutlivesItsRegistration: the answer of a takeover comes after the registration it was made under has ended.
// The partition must end up led under the new one; under the old one every other node, and every client that asks for the
// leader, takes it for dead.
func TestTakeoverThatOutlivesItsRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		old := n.broker.session.Load()
		var tries atomic.Int32
		n.kv.SetFaults(memory.Faults{Txn: func(tx metadata.Txn) memory.Outcome {
			if !slices.ContainsFunc(tx.Then, func(op metadata.Op) bool { return op.Kind == metadata.OpPut && strings.Contains(op.Key, "leader/") }) {
				return memory.Outcome{}
			}
			switch tries.Add(1) {
			case 1:
				return memory.Outcome{LoseReply: true}
			case 2:
				time.Sleep(2 * time.Second) // it hears of its success only when another registration is in force
			}
			return memory.Outcome{}
		}})
		topic := n.create("t", nil)
		n.await("the takeover to be asked about again", func() bool { return tries.Load() == 2 })
		check(t, old.Close(context.Background()))
		id := record.PartitionID{Topic: topic.ID}
		n.await("the partition to be led under the registration in force", func() bool {
			state, _ := n.meta.Image().Partition(id)
			s := n.broker.session.Load()
			p, err := n.broker.Partition(id)
			return s != nil && s != old && state.Leader.Incarnation == s.Incarnation() && err == nil && p.Marks().Leading
		})
		n.led(topic).must(t, built(t, nobody, 1))
	})
}

// TestTopicGoneWhileItIsTaken: a topic that was deleted between the look at the image and the taking is passed over, and does not
// end the process.
func TestTopicGoneWhileItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		gone := record.PartitionID{Topic: record.TopicID{1}}
		again, err := n.broker.takeOver(t.Context(), n.broker.session.Load(), []record.PartitionID{gone})
		if err != nil || len(again) != 0 {
			t.Errorf("taking a topic that is gone: again %v, error %v", again, err)
		}
	})
}

// TestDeletedTopic: appends that wait when their topic is deleted are answered, its hot log goes, and a topic of the same name
// begins empty.
func TestDeletedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1))
		release := n.holdSyncs()
		w, pend := p.start(built(t, nobody, 2), -1)
		_, err := n.meta.DeleteTopic(t.Context(), p.ID().Topic)
		check(t, err)
		<-w.C()
		if !errors.Is(pend.Err, ErrUnknownPartition) {
			t.Errorf("an append to a topic that is deleted: %v", pend.Err)
		}
		release()
		n.await("the hot log to go", func() bool {
			ids, err := n.db.Partitions()
			return err == nil && len(ids) == 0 && len(n.broker.Partitions()) == 0
		})
		if err := p.append(t, built(t, nobody, 3), -1).Err; !errors.Is(err, ErrUnknownPartition) {
			t.Errorf("an append to a topic that is gone: %v", err)
		}
		next := n.topic("t", nil)
		if base := next.must(t, built(t, nobody, 4)); base != 0 || next.ID() == p.ID() {
			t.Errorf("the topic of the same name begins at %d", base)
		}
	})
}

// TestLateViewOfAnEarlierTerm: a view that comes late does not replace a newer one.
func TestLateViewOfAnEarlierTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", map[string]string{"segment.ms": "1000", "retention.ms": "-1"})
		n.await("the manifest", func() bool { return p.view.Load() != nil })
		early := p.view.Load()
		p.must(t, built(t, nobody, 1))
		n.await("the seal", func() bool { return p.Marks().TieredEnd == 1 })
		now := p.view.Load()
		p.Archived(early)
		if p.view.Load() != now || p.Marks().TieredEnd != 1 {
			t.Errorf("the early view %+v is in force", early.Head)
		}
	})
}

// TestOrphanThatCounts: a log that is assigned to others stays as long as this node is in the in-sync set, also over a restart: it may be
// the only one that has everything.
func TestOrphanThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1, 2, 3))
		ctx := context.Background()
		state, _ := n.meta.Image().Partition(p.id)
		topic, err := n.meta.AlterAssignments(ctx, n.meta.Image().TopicByID(p.id.Topic),
			[]metadata.AssignmentChange{{Next: metadata.Assignment{Replicas: []record.NodeID{2}}, ISR: state.ISR.Rev}})
		check(t, err)
		check(t, n.meta.WaitFor(ctx, topic.Rev))
		check(t, n.broker.dropOrphans(ctx)) // as a start does
		check(t, n.broker.retire(ctx, p.id))
		if ids, err := n.db.Partitions(); err != nil || !slices.Contains(ids, p.id) || p.Marks().LogEnd != 3 {
			t.Errorf("the log of the only in-sync replica is gone: %v, %v", ids, err)
		}
	})
}

// TestLedElsewhereOnce: a partition that this node leads while it is assigned to others is looked at once. Twice would begin an epoch
// twice, which ended the process.
func TestLedElsewhereOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		ctx := context.Background()
		state, _ := n.meta.Image().Partition(p.id)
		topic, err := n.meta.AlterAssignments(ctx, n.meta.Image().TopicByID(p.id.Topic),
			[]metadata.AssignmentChange{{Next: metadata.Assignment{Replicas: []record.NodeID{2}}, ISR: state.ISR.Rev}})
		check(t, err)
		check(t, n.meta.WaitFor(ctx, topic.Rev))
		for _, all := range []bool{false, true} {
			n.broker.dirty.take()
			n.broker.dirty.mu.Lock()
			n.broker.dirty.mu.all, n.broker.dirty.mu.topics = all, map[record.TopicID]struct{}{p.id.Topic: {}}
			n.broker.dirty.mu.Unlock()
			if _, ids := n.broker.toLookAt(n.meta.Image); len(ids) != 1 {
				t.Errorf("everything dirty: %v: it is looked at %d times: %v", all, len(ids), ids)
			}
		}
	})
}

// TestTakenOverTwice: a leadership that is asked for again, since the image was behind, goes on. Begun anew it would know nothing of its
// followers, and those of an idle partition say nothing twice; and what waits for an acknowledgement would be told that nobody leads.
func TestTakenOverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		lead := func() *leadership { p.mu.Lock(); defer p.mu.Unlock(); return p.mu.lead }
		before := lead()
		again, err := n.broker.takeOver(context.Background(), n.broker.session.Load(), []record.PartitionID{p.id})
		if err != nil || len(again) > 0 {
			t.Errorf("again %v, %v", again, err)
		}
		if before == nil || lead() != before {
			t.Error("the leadership began anew")
		}
	})
}
