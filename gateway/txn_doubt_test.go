// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// loseTxnAnswers has changes of transactional ids executed, but nobody hears of it.
func (n *node) loseTxnAnswers(lose bool) {
	f := memory.Faults{}
	if lose {
		f.Txn = func(t metadata.Txn) memory.Outcome {
			for _, op := range t.Then {
				if op.Kind == metadata.OpPut && strings.Contains(op.Key, "/txn/") {
					return memory.Outcome{LoseReply: true}
				}
			}
			for _, op := range t.Else { // nor may the second execution tell
				if strings.Contains(op.Key, "/txn/") {
					return memory.Outcome{LoseReply: true}
				}
			}
			return memory.Outcome{}
		}
	}
	n.kv.SetFaults(f)
}

// stepOf makes a step of the id "x" that has to succeed.
func (n *node) stepOf(step txnStep) *txn.Txn {
	n.t.Helper()
	out, err := n.server.stepTxn(n.t.Context(), "x", step)
	check(n.t, err)
	check(n.t, out.reason)
	return out.txn
}

// TestBeginningInDoubt: a transaction of which its coordinator does not know whether it began is aborted when its time is over, though its
// client is gone and nobody asks: what it would commit for a group must not stay in the way for ever.
func TestBeginningInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		topic := n.topic("t", 1, nil)
		is := n.stepOf(func(now time.Time, _ *txn.Txn) (*txn.Txn, error) { return txn.New(now, 7, time.Minute), nil })
		n.loseTxnAnswers(true)
		_, err := n.server.stepTxn(t.Context(), "x", func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.Add(now, is.Producer, txn.Bumping, nil, "g")
		})
		if err == nil {
			t.Fatal("the answer was not lost: the test tests nothing")
		}
		n.loseTxnAnswers(false)
		check(t, n.server.pendOffsets(t.Context(), &txnCommit{
			id: "x", who: is.Producer, group: "g", addGroup: true, member: group.Committer{Generation: -1},
			topics: []metadata.TopicOffsets{{Topic: topic.ID, List: []metadata.CommittedOffset{{Offset: 5, LeaderEpoch: record.NoEpoch, Committed: metadata.MillisOf(time.Now())}}}},
		}))
		time.Sleep(2 * time.Minute)
		pending, err := n.meta.ReadPendingOf(t.Context(), is.ID, []string{"g"})
		check(t, err)
		if pending[0].Rev != 0 {
			st, err := n.meta.ReadTxn(t.Context(), "x")
			check(t, err)
			stored, err := txn.Decode(st.Value)
			check(t, err)
			t.Errorf("the offsets are pending, the transaction is %s", stored.State)
		}
	})
}

// TestDecisionInDoubt: a decision of which its coordinator does not know whether it was stored is carried out, whoever is gone.
func TestDecisionInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		topic := n.topic("t", 1, nil)
		is := n.stepOf(func(now time.Time, _ *txn.Txn) (*txn.Txn, error) { return txn.New(now, 7, 15*time.Minute), nil })
		n.stepOf(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.Add(now, is.Producer, txn.Bumping, []record.PartitionID{{Topic: topic.ID}})
		})
		n.loseTxnAnswers(true)
		_, err := n.server.stepTxn(t.Context(), "x", func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.End(now, is.Producer, true, txn.Bumping, record.NoProducerID)
		})
		if err == nil {
			t.Fatal("the answer was not lost: the test tests nothing")
		}
		n.loseTxnAnswers(false)
		time.Sleep(time.Minute) // its own time is far from over
		st, err := n.meta.ReadTxn(t.Context(), "x")
		check(t, err)
		stored, err := txn.Decode(st.Value)
		check(t, err)
		if stored.State != txn.CompleteCommit {
			t.Errorf("the transaction is %s", stored.State)
		}
	})
}

// TestOffsetsOfADecisionInDoubt: so are the offsets that the decision had no room for.
func TestOffsetsOfADecisionInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		topic := n.topic("t", 1, nil)
		is := n.stepOf(func(now time.Time, _ *txn.Txn) (*txn.Txn, error) { return txn.New(now, 7, 15*time.Minute), nil })
		var groups []string
		for i := range 60 {
			groups = append(groups, fmt.Sprint("g", i))
		}
		n.stepOf(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.Add(now, is.Producer, txn.Bumping, nil, groups...)
		})
		for _, g := range groups {
			check(t, n.server.pendOffsets(t.Context(), &txnCommit{
				id: "x", who: is.Producer, group: g, member: group.Committer{Generation: -1},
				topics: []metadata.TopicOffsets{{Topic: topic.ID, List: []metadata.CommittedOffset{{Offset: 5, LeaderEpoch: record.NoEpoch, Committed: metadata.MillisOf(time.Now())}}}},
			}))
		}
		n.loseTxnAnswers(true)
		_, err := n.server.stepTxn(t.Context(), "x", func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.End(now, is.Producer, true, txn.Bumping, record.NoProducerID)
		})
		if err == nil {
			t.Fatal("the answer was not lost: the test tests nothing")
		}
		n.loseTxnAnswers(false)
		time.Sleep(time.Minute)
		pending, err := n.meta.ReadPendingOf(t.Context(), is.ID, groups)
		check(t, err)
		for i, p := range pending {
			if got := fetchedOffset(n.dial().do(pipedFetch, fetchOf(groups[i]))); p.Rev != 0 || got != 5 {
				t.Fatalf("group %s has offset %d, want 5; pending %v", groups[i], got, p.Rev != 0)
			}
		}
	})
}

// TestTimeOutsBesideLoading: a shard that cannot be loaded keeps no transaction of another from its time-out.
func TestTimeOutsBesideLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		topic := n.topic("t", 1, nil)
		is := n.stepOf(func(now time.Time, _ *txn.Txn) (*txn.Txn, error) { return txn.New(now, 7, time.Minute), nil })
		n.stepOf(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.Add(now, is.Producer, txn.Bumping, []record.PartitionID{{Topic: topic.ID}})
		})
		shards := n.meta.Image().Shards()
		other := (metadata.ShardOf("x", shards) + 1) % shards
		c := n.server.groups
		c.mu.Lock()
		loading := newShard(c, c.mu.shards[other].session, c.mu.shards[other].co)
		loaded := c.mu.shards[other]
		c.mu.shards[other] = loading
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.mu.shards[other] = loaded
			c.mu.Unlock()
		}()
		time.Sleep(2 * time.Minute)
		out, err := n.server.stepTxn(t.Context(), "x", func(time.Time, *txn.Txn) (*txn.Txn, error) { return nil, nil })
		check(t, err)
		if out.txn.State != txn.CompleteAbort {
			t.Errorf("the transaction is %s", out.txn.State)
		}
	})
}

// TestCommitBesideTransaction: a commit that a transaction's end made old is refused alone. The shard's other groups keep their coordinator, and
// what they commit in the same change is stored.
func TestCommitBesideTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		shards := n.meta.Image().Shards()
		ids := []string{"g"}
		for i := 0; len(ids) < 3; i++ {
			if id := fmt.Sprint("g", i); metadata.ShardOf(id, shards) == metadata.ShardOf("g", shards) {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			check(t, codeError(commitCode(n.dial().do(pipedCommit, commitOf(id, 1)))))
		}
		sh, err := n.server.groups.find("g")
		check(t, err)
		moved := false
		n.kv.SetFaults(memory.Faults{Txn: func(x metadata.Txn) memory.Outcome {
			key := ""
			for _, op := range x.Then {
				if op.Kind == metadata.OpPut && strings.Contains(op.Key, "/goff/") && strings.Contains(op.Key, "/g/") {
					key = op.Key
				}
			}
			if key != "" && !moved { // what a transaction's end does
				moved = true
				old, err := n.kv.Range(t.Context(), metadata.RangeRequest{Key: key})
				check(t, err)
				_, err = n.kv.Txn(t.Context(), metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpPut, Key: key, Value: old.KVs[0].Value}}})
				check(t, err)
			}
			return memory.Outcome{}
		}})
		release := n.holdWrites()
		var codes [3]Code
		var wg sync.WaitGroup
		for i, id := range []string{ids[1], ids[0], ids[2]} { // the first one leaves by itself
			req := commitOf(id, 5)
			c := n.dial()
			correlation := c.send(pipedCommit, req)
			wg.Go(func() { codes[i] = commitCode(c.receive(correlation, req)) })
			synctest.Wait()
		}
		sh.pended("g")
		synctest.Wait()
		release()
		wg.Wait()
		n.kv.SetFaults(memory.Faults{})
		if want := [3]Code{codeNone, codeCoordinatorNotAvailable, codeNone}; codes != want || !moved {
			t.Errorf("codes %v, want %v", codes, want)
		}
		if now, err := n.server.groups.find("g"); now != sh || err != nil {
			t.Errorf("the shard has another term: %v", err)
		}
		for i, want := range []int64{1, 5, 5} {
			if got := fetchedOffset(n.dial().do(pipedFetch, fetchOf(ids[i]))); got != want {
				t.Errorf("group %s has offset %d, want %d", ids[i], got, want)
			}
		}
		check(t, codeError(commitCode(n.dial().do(pipedCommit, commitOf("g", 6)))))
		if got := fetchedOffset(n.dial().do(pipedFetch, fetchOf("g"))); got != 6 {
			t.Errorf("group g has offset %d, want 6", got)
		}
	})
}

func codeError(c Code) error {
	if c == codeNone {
		return nil
	}
	return fmt.Errorf("code %d", c)
}
