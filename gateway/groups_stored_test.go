// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
)

// TestClassicGroupTooLarge: a classic group that cannot be stored gives nobody an assignment, however often one asks.
func TestClassicGroupTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: impatient}).coordinating()
		sh, err := n.server.groups.find("g")
		check(t, err)
		random := rand.NewChaCha8([32]byte{1})
		joins, syncs := make(chan group.Output, 2), make(chan group.Output, 1)
		join := func(now time.Time, id string) {
			r := &group.JoinRequest{
				Token: sh.wait(func(o group.Output) { joins <- o }), NewID: id, Session: time.Minute, Rebalance: time.Minute, ProtocolType: "consumer",
				Protocols: []group.Protocol{{Name: "range", Metadata: make([]byte, 600<<10)}},
			}
			_, _ = random.Read(r.Protocols[0].Metadata)
			e := sh.entry("g", now)
			e.g.Join(now, r, sh.groupConfig())
			sh.stepped(e)
		}
		sync := func() error {
			check(t, sh.call(func(now time.Time) {
				e := sh.groups["g"]
				e.g.Sync(now, &group.SyncRequest{Token: sh.wait(func(o group.Output) { syncs <- o }), MemberID: "a", Generation: 1, Assignments: map[string][]byte{"a": {1}}})
				sh.stepped(e)
			}))
			return (<-syncs).Err
		}
		check(t, sh.call(func(now time.Time) {
			join(now, "a")
			join(now, "b")
		}))
		for range 2 {
			if o := <-joins; !errors.Is(o.Err, group.ErrTooLarge) {
				t.Fatalf("a join: %+v", o)
			}
		}
		for range 3 {
			if err := sync(); !errors.Is(err, group.ErrTooLarge) {
				t.Fatalf("an assignment that is not stored: %v", err)
			}
		}
		if n.revisionOf("/group/") != 0 {
			t.Error("it was stored")
		}
	})
}

// TestEmptyConsumerGroupBecomesClassic: who joins an empty consumer group by the classic protocol does not undo that it became empty, though
// that is not stored yet.
func TestEmptyConsumerGroupBecomesClassic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick("offsets.topic.num.partitions", "1")}).coordinating()
		topic := n.topic("t", 1, nil)
		v := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		v.must(n, false)
		release := n.holdWrites()
		codes := make(chan Code, 2)
		go func() { // it is on its way, and what comes after waits
			codes <- groupCode(n.server.commitOffsets(context.Background(), "other", group.Committer{Generation: group.NoGeneration}, []chunkEdit{
				{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 1, Committed: metadata.MillisOf(time.Now())}}},
			}))
		}()
		synctest.Wait()
		v.epoch = -1
		go func() { codes <- v.beat(n, false) }()
		synctest.Wait()
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "g", 60_000, 60_000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{}}}
		if code := n.dial().do(4, join).(*kmsg.JoinGroupResponse).ErrorCode; code != codeInconsistentGroupProtocol.int16() {
			t.Fatalf("a join without a protocol type: %d", code)
		}
		if got := n.listed("g"); got != "consumer Empty consumer" {
			t.Errorf("a refused join made it %q", got)
		}
		join.ProtocolType = "consumer"
		if code := n.dial().do(4, join).(*kmsg.JoinGroupResponse).ErrorCode; code != codeMemberIDRequired.int16() {
			t.Fatalf("a join: %d", code)
		}
		release()
		late := time.After(time.Minute)
		for range cap(codes) {
			select {
			case code := <-codes:
				if code != codeNone {
					t.Errorf("code %d", code)
				}
			case <-late:
				t.Fatal("who left is not answered")
			}
		}
		if e := reload(t, n).groups["g"]; e != nil && !e.empty() {
			t.Error("after a failover the member that left is back")
		}
	})
}
