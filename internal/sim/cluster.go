// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// This file is what a run does and checks beyond that of one node.

// place chooses replicas for new partitions: on all nodes, or three of them, each time with another one preferred.
func (r *run) place(partitions int) [][]int32 {
	out := make([][]int32, partitions)
	for i := range out {
		r.placed++
		for j := range r.w.replicas() {
			out[i] = append(out[i], int32((r.placed+int(r.w.seed)+j)%len(r.w.machines))+1)
		}
	}
	return out
}

// replicasOf is where a new topic's partitions shall be. Where a controller has something to decide, those of spare are all on the first
// nodes, and mix and aged are left to the cluster, which chooses their factors too.
func (r *run) replicasOf(name string, partitions int) [][]int32 {
	if name == risked {
		return [][]int32{{1, 2, 3}}
	}
	out := r.place(partitions)
	switch {
	case !r.w.knobs.placing():
	case name == spare:
		for i := range out {
			out[i] = []int32{1, 2, 3}
		}
	case name == mix, name == aged:
		clear(out)
	}
	return out
}

// awaitNodes waits until every node knows all others.
func (r *run) awaitNodes() {
	all := func() bool {
		lives := r.w.lives()
		for _, n := range lives {
			if len(n.meta.Image().Brokers()) < len(r.w.machines) {
				return false
			}
		}
		return len(lives) == len(r.w.machines)
	}
	for range 10_000 {
		if all() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.w.failf("V1: %d nodes run", len(r.w.lives()))
}

// every lists all partitions.
func (r *run) every() []part {
	return slices.Concat(r.all(), r.parts[probed], r.parts[spare], r.parts[risked])
}

// anyKnows tells whether a node's image has a topic of that name.
func (w *World) anyKnows(name string) bool {
	return slices.ContainsFunc(w.lives(), func(n *node) bool {
		t := n.meta.Image().Topic(name)
		return t != nil && !t.Deleting
	})
}

// reassign asks for another place or order of a partition's replicas.
func (r *run) reassign(rng *rand.Rand) {
	p := append(slices.Clone(r.parts[own]), r.parts[mix]...)[rng.IntN(3)]
	has := len(r.w.machines)
	for _, n := range r.w.lives() {
		if t := n.meta.Image().TopicByID(p.id.Topic); t != nil {
			has = len(t.Partitions[p.id.Index])
		}
	}
	var target []int32
	for _, i := range rng.Perm(len(r.w.machines)) {
		target = append(target, int32(i+1))
	}
	target = target[:r.w.replicas()]
	if has == len(target) && rng.IntN(2) == 0 {
		target = target[:len(target)-1]
	}
	err := r.raw.until("reassigning "+p.String(), func(ctx context.Context) error {
		err := r.raw.reassign(ctx, p, target)
		if errors.Is(err, codeBadAssignment) {
			return nil // a node is away: another time
		}
		return err
	})
	if err != nil {
		r.w.failf("reassigning %s to %v: %v", p, target, err)
	}
}

func (c *rawClient) reassign(ctx context.Context, p part, target []int32) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = p.topic
	a := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	a.Partition, a.Replicas = p.id.Index, target
	t.Partitions = append(t.Partitions, a)
	req.Topics = append(req.Topics, t)
	kresp, err := c.any(ctx, 1, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.AlterPartitionAssignmentsResponse)
	if err := codeError(resp.ErrorCode); err != nil {
		return err
	}
	return codeError(resp.Topics[0].Partitions[0].ErrorCode)
}

// peekAtFollower reads a bit of a partition from a node that does not lead it, as a consumer may (KIP-392): what it gives is what the
// leader gives. It may refuse, and it may know less.
func (r *run) peekAtFollower(p part, rng *rand.Rand) {
	start, hw := r.bounds(p)
	if r.w.failed() || hw == start {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l, err := r.raw.leader(ctx, p)
	if err != nil {
		return
	}
	at := leaderKnown{node: record.NodeID((int(l.node)+rng.IntN(len(r.w.machines)-1))%len(r.w.machines) + 1), epoch: record.NoEpoch}
	from := start + record.Offset(rng.Int64N(int64(hw-start)))
	f, err := r.raw.fetchAt(ctx, at, p, from, int32(1<<rng.IntN(17)))
	switch {
	case r.w.failed():
	case errors.Is(err, codeOffsetOutOfRange):
		if low := r.list(p, earliest).offset; from >= low && !r.w.failed() { // what a follower lacks may be at the leader all the same
			r.w.failf("S27: %s has everything from %d to %d, node %d says that %d is out of range", p, low, hw, at.node, from)
		}
	case err != nil && !retriable(err):
		r.w.failf("fetch of %s from %d from node %d: %v", p, from, at.node, err)
	case err != nil || len(f.batches) == 0:
	default:
		r.w.cover.hit(FollowerFetch)
		r.checkBatches(p, from, &f, false, 0, false)
		r.each(p, f.batches, from, func(record.Offset, logRecord) {})
	}
}

// awaitInSync waits until every partition is led and has all its replicas in sync and equal (V1).
func (r *run) awaitInSync(began time.Time) {
	if !r.w.knobs.several() {
		return
	}
	for _, p := range r.every() {
		for !r.w.failed() {
			lacks := r.w.lacks(p.id)
			if lacks == "" {
				break
			}
			if time.Since(began) > recovery {
				r.w.failf("V1: %s, %v after the last fault: %s\n%s", p, recovery, lacks, r.w.why(p.id))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// lacks says what a partition lacks of being led, and of having all its replicas in sync and equal; nothing: "".
func (w *World) lacks(id record.PartitionID) string {
	lives := w.lives()
	if len(lives) < len(w.machines) {
		return fmt.Sprintf("%d nodes run", len(lives))
	}
	leaders, ends := 0, map[record.Offset]bool{}
	for _, n := range lives {
		img := n.meta.Image()
		t, s := img.TopicByID(id.Topic), metadata.PartitionState{}
		if t == nil {
			return fmt.Sprintf("node %d does not know it", n.m.id)
		}
		s, _ = img.Partition(id)
		replicas := t.Partitions[id.Index]
		switch _, moving := t.Moves[id.Index]; {
		case moving:
			return fmt.Sprintf("node %d takes it for moving", n.m.id)
		case len(s.ISR.Members) != len(replicas) || len(s.ISR.ELR) > 0:
			return fmt.Sprintf("node %d has it in sync on %+v of %v, eligible %+v", n.m.id, s.ISR.Members, replicas, s.ISR.ELR)
		case !slices.Contains(replicas, n.m.id):
			continue
		}
		p, err := n.broker.Partition(id)
		if err != nil {
			return fmt.Sprintf("node %d: %v", n.m.id, err)
		}
		m := p.Marks()
		if m.Leading {
			leaders++
		}
		if m.HW != m.LogEnd || !m.Leading && !m.Following {
			return fmt.Sprintf("node %d has %+v", n.m.id, m)
		}
		ends[m.LogEnd] = true
	}
	if leaders != 1 || len(ends) != 1 {
		return fmt.Sprintf("%d lead it, it ends at %v", leaders, ends)
	}
	return ""
}

// why is what the nodes themselves say about a partition.
func (w *World) why(id record.PartitionID) string {
	var b strings.Builder
	for _, n := range w.lives() {
		fmt.Fprintf(&b, "node %d: %s\n", n.m.id, strings.Join(n.broker.Why(id), "; "))
	}
	return b.String()
}

// checkReplicas reads all of a partition from each replica: batch by batch it is what everybody was given (S2, S12).
func (r *run) checkReplicas(p part, start, end record.Offset) {
	if !r.w.knobs.several() || p.topic == aged {
		return // of aged the start moves
	}
	for _, n := range r.w.lives() {
		t := n.meta.Image().TopicByID(p.id.Topic)
		if t == nil || !slices.Contains(t.Partitions[p.id.Index], n.m.id) {
			continue
		}
		deadline := time.Now().Add(recovery)
		for next := start; next < end && !r.w.failed(); {
			f, err := n.read(p, next)
			if err == nil && len(f.batches) > 0 {
				r.checkBatches(p, next, &f, false, 0, false)
				next = r.each(p, f.batches, next, func(record.Offset, logRecord) {})
				continue
			}
			if time.Now().After(deadline) {
				r.w.failf("S2, V1: node %d gives nothing of %s from %d of [%d, %d) on: %v", n.m.id, p, next, start, end, err)
			}
			time.Sleep(100 * time.Millisecond) // it may be between two roles
		}
	}
}

// read reads from this node's replica, whatever its role.
func (n *node) read(p part, from record.Offset) (f fetched, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q, err := n.broker.Partition(p.id)
	if err != nil {
		return f, err
	}
	var res broker.ReadResult
	req := broker.ReadRequest{Offset: from, MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch, AnyReplica: true}
	if err = q.Read(&req, &res); err == nil && res.Cold {
		err = q.ReadCold(ctx, &req, &res)
	}
	if err != nil {
		return f, err
	}
	f.hw, f.logStart = res.HighWatermark, res.LogStart
	f.batches, err = split(res.Data)
	return f, err
}
