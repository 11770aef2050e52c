// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
)

// txnOffsetStories are what becomes of a partition's offset between transactions of producers a and b, plain commits (p), deletions of the
// offset (forget) and of the group (drop). "=5" is what is committed then, "?" that it is unstable, "-" that there is none. Kafka 4.4 passes
// them all.
var txnOffsetStories = []string{
	"p5 a10 =5 ? a+ =10",
	"a10 p5 ? =5 a+ =5", // the last to come wins, not the last to end
	"a10 p5 a7 a+ =7",
	"a10 p5 a- =5",
	"a10 b20 b+ a+ =20",
	"a10 b20 a+ b+ =20",
	"b20 a10 a+ b+ =10",
	"a10 b20 b+ p5 a+ =5",
	"a10 drop - a+ -",
	"p5 a10 drop - a+ -",
	"p5 a10 drop a11 a+ =11",
	"a10 b20 drop p3 b+ a+ =3",
	"p5 a10 forget - a+ -",
	"a10 forget - a+ -",
	"a10 p5 forget a+ -",
	"p5 a10 forget p6 a+ =6",
	"a10 forget a11 ? a+ =11",
}

// TestTxnOffsetStories: an oracle is started as for TestTxnCodes.
func TestTxnOffsetStories(t *testing.T) {
	if addr := os.Getenv(oracleEnv); addr != "" {
		f := &txnFixture{oracle: true, codeFixture: &codeFixture{t: t, prefix: fmt.Sprintf("S%d-", time.Now().UnixNano()), dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}}
		f.prepare()
		for _, s := range txnOffsetStories {
			f.story(s)
		}
		return
	}
	// The clock of the bubble stands still between steps: an order by time alone would not tell them apart.
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		for _, s := range txnOffsetStories {
			f.story(s)
		}
	})
}

// TestOrderOfOffsetsOutlivesCoordinator: a coordinator whose clock is behind that of the one before still knows which commit came last.
func TestOrderOfOffsetsOutlivesCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		ahead, err := n.server.groups.find("g")
		check(t, err)
		check(t, ahead.call(func(now time.Time) { ahead.stamped = metadata.MillisOf(now.Add(time.Hour)) }))
		f.begin("new", txn.Bumping)
		f.must("pend", f.commitOffset(txnCommitAdds, "g", nil))
		n.loseShard("g")
		n.await("the shard to be served again", func() bool { sh, err := n.server.groups.find("g"); return err == nil && sh != ahead })
		check(t, codeError(commitCode(f.do(f.c, pipedCommit, commitOf("g", 5)))))
		f.must("end", f.end(endTxnBumps, true, nil).ErrorCode)
		if got := f.committed("g"); got != "=5" {
			t.Errorf("the offset is %s", got)
		}
	})
}

// TestOrderOfOffsetsEndedWhileLoading: so does one whose clock is behind, and which loads while a transaction ends: its offset is pending no more, or
// not committed yet, whenever one looks once.
func TestOrderOfOffsetsEndedWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "3"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		ahead, err := n.server.groups.find("g")
		check(t, err)
		check(t, ahead.call(func(now time.Time) { ahead.stamped = metadata.MillisOf(now.Add(time.Hour)) }))
		begin := func() { // a transaction whose coordinator is not the shard that loads
			for f.begin("new", txn.Bumping); metadata.ShardOf(f.id, n.meta.Image().Shards()) == ahead.co.Shard; f.begin("new", txn.Bumping) {
			}
		}
		begin()
		f.must("pend", f.commitOffset(txnCommitAdds, "g", nil))

		reached, ended := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(ended) })
		defer goOn() // a test that fails ends
		var once sync.Once
		n.kv.SetFaults(memory.Faults{Txn: func(t metadata.Txn) memory.Outcome {
			if len(t.Then) == 1 && t.Then[0].Kind == metadata.OpGet && strings.HasSuffix(t.Then[0].Key, fmt.Sprintf("/gpend/%d/", ahead.co.Shard)) {
				once.Do(func() { close(reached) })
				<-ended
			}
			return memory.Outcome{}
		}})
		n.loseShard("g")
		<-reached
		f.must("end", f.end(endTxnBumps, true, nil).ErrorCode)
		n.await("the transaction to be over", func() bool { return f.state() == "CompleteCommit" })
		goOn()
		n.kv.SetFaults(memory.Faults{})
		n.await("the shard to be served again", func() bool { sh, err := n.server.groups.find("g"); return err == nil && sh != ahead })

		begin()
		f.must("pend", f.commitOffset(txnCommitAdds, "g", func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = 20 }))
		f.must("end", f.end(endTxnBumps, true, nil).ErrorCode)
		if got := f.committed("g"); got != "=20" {
			t.Errorf("the offset is %s", got)
		}
	})
}

// TestExpiryBesideATransaction: a group without members and offsets is to be deleted when a transaction has committed an offset of which its
// coordinator does not know yet. The offset stays.
func TestExpiryBesideATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		n.dial().member("g", time.Minute).leave()
		f.begin("new", txn.Bumping)
		f.must("pend", f.commitOffset(txnCommitAdds, "g", nil))
		f.must("end", f.end(endTxnBumps, true, nil).ErrorCode)
		if got := f.committed("g"); got != "=7" {
			t.Fatalf("the offset is %s", got)
		}
		sh, err := n.server.groups.find("g")
		check(t, err)
		check(t, sh.call(sh.sweep))
		time.Sleep(time.Second)
		if got := f.committed("g"); got != "=7" {
			t.Errorf("then the offset is %s", got)
		}
	})
}

// TestDeletedWhileRead: offsets that are deleted while the coordinator reads them for a transaction's sake are gone for it too. Else it would decide
// commits on them, all of which the store refuses.
func TestDeletedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		check(t, codeError(commitCode(f.do(f.c, pipedCommit, commitOf("g", 5)))))
		f.begin("new", txn.Bumping) // it stays open
		f.must("pend", f.commitOffset(txnCommitAdds, "g", func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Partitions[0].Partition = 1 }))
		sh, err := n.server.groups.find("g")
		check(t, err)
		deletions := 0
		check(t, sh.call(func(time.Time) { deletions = sh.deletions }))
		read, err := n.meta.ReadOffsets(context.Background(), sh.co, "g", nil)
		check(t, err)
		f.must("deletion", f.deleteOffsets("g", "t", 0))
		check(t, sh.call(func(now time.Time) {
			if len(read) != 1 || sh.caughtUp(now, "g", read, deletions) || len(sh.groups["g"].chunks) > 0 {
				t.Errorf("%d keys read are taken up", len(read))
			}
		}))
		if code := commitCode(f.do(f.c, pipedCommit, commitOf("g", 6))); code != codeNone {
			t.Errorf("a commit after that: %d", code)
		}
	})
}

// TestDeletedGroupJoined: who joins a group that is deleted, once nobody is in it any more, and has a transaction commit offsets before the
// deletion is through keeps them. What a transaction had pending before goes.
func TestDeletedGroupJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		check(t, codeError(commitCode(f.do(f.c, pipedCommit, commitOf("g", 5)))))
		f.begin("new", txn.Bumping)
		f.must("pend", f.commitOffset(txnCommitAdds, "g", nil))
		before, who := f.id, f.who

		reached, joined := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(joined) })
		defer goOn() // a test that fails ends
		deleted := false
		var once sync.Once
		n.kv.SetFaults(memory.Faults{Txn: func(t metadata.Txn) memory.Outcome {
			for _, op := range t.Then {
				deleted = deleted || op.Kind == metadata.OpDelete && strings.Contains(op.Key, "/goff/")
				if deleted && op.Kind == metadata.OpGet && strings.HasSuffix(op.Key, "/gpend/0/g/") {
					once.Do(func() {
						close(reached)
						<-joined
					})
				}
			}
			return memory.Outcome{}
		}})
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{"g"}
		deleter := n.dial()
		deletion := deleter.send(2, r)
		<-reached
		m := n.dial().member("g", time.Minute)
		f.begin("new", txn.Bumping)
		f.must("pend of the member", f.commitOffset(txnCommitAdds, "g", func(r *kmsg.TxnOffsetCommitRequest) {
			r.MemberID, r.Generation, r.Topics[0].Partitions[0].Offset = m.id, int32(m.generation), 20
		}))
		goOn()
		f.must("deletion", deleter.receive(deletion, r).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
		f.must("end", f.end(endTxnBumps, true, nil).ErrorCode)
		if got := f.committed("g"); got != "=20" {
			t.Errorf("the offset is %s", got)
		}
		list, err := n.server.readPending(context.Background(), "g")
		check(t, err)
		for i := range list {
			if list[i].Producer == who.ID {
				t.Errorf("what transaction %s had pending is still there", before)
			}
		}
	})
}

// story plays one of them with a group and producers of its own.
func (f *txnFixture) story(text string) {
	f.t.Helper()
	group := f.name(fmt.Sprint("story", f.unused()))
	ids, producers := map[byte]string{}, map[byte]txn.Producer{}
	for i, step := range strings.Fields(text) {
		var offset int64
		_, _ = fmt.Sscanf(step[1:], "%d", &offset)
		got := ""
		if who := step[0]; who == 'a' || who == 'b' {
			if ids[who] == "" {
				f.begin("new", txn.Bumping)
				ids[who], producers[who] = f.id, f.who
			}
			f.id, f.who = ids[who], producers[who]
			code := codeConcurrentTransactions.int16()
			for code == codeConcurrentTransactions.int16() {
				if step[1] == '+' || step[1] == '-' {
					code = f.end(endTxnBumps, step[1] == '+', nil).ErrorCode
				} else {
					code = f.commitOffset(txnCommitAdds, group, func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = offset })
				}
				time.Sleep(10 * time.Millisecond * time.Duration(min(code, 1)))
			}
			f.must(step, code)
			continue
		}
		switch {
		case step == "drop":
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Groups = []string{group}
			f.must(step, f.do(f.c, 2, r).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode)
		case step == "forget":
			r := kmsg.NewPtrOffsetDeleteRequest()
			r.Group = group
			r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: f.name("t"), Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
			resp := f.do(f.c, 0, r).(*kmsg.OffsetDeleteResponse)
			f.must(step, resp.ErrorCode)
			f.must(step, resp.Topics[0].Partitions[0].ErrorCode)
		case step[0] == 'p':
			req := commitOf(group, offset)
			req.Topics[0].Topic = f.name("t")
			f.must(step, commitCode(f.do(f.c, pipedCommit, req)).int16())
		case step == "?":
			got = f.fetched(group, true)
		default:
			got = f.committed(group)
		}
		if got != "" && got != step {
			f.t.Errorf("%q: step %d gives %s", text, i+1, got)
		}
	}
}

// committed is what is committed now, and after a decided transaction has told its groups.
func (f *txnFixture) committed(group string) string {
	for range 100 {
		if f.id == "" || f.state() != "PrepareCommit" && f.state() != "PrepareAbort" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return f.fetched(group, false)
}

func (f *txnFixture) fetched(group string, stable bool) string {
	req := fetchOf(group)
	req.Topics[0].Topic, req.RequireStable = f.name("t"), stable
	p := f.do(f.c, pipedFetch, req).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0]
	switch {
	case p.ErrorCode == codeUnstableOffsetCommit.int16():
		return "?"
	case p.ErrorCode != 0:
		return fmt.Sprint("code ", p.ErrorCode)
	case p.Offset == -1:
		return "-"
	}
	return fmt.Sprint("=", p.Offset)
}
