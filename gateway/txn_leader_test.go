// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// saysTxn is a coordinator that gives one verdict, and notes what it was asked.
type saysTxn struct {
	mu    sync.Mutex
	err   error
	asked []broker.TxnQuestion
}

func (v *saysTxn) VerifyTxn(_ context.Context, q *broker.TxnQuestion) []broker.TxnVerdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, *q)
	out := make([]broker.TxnVerdict, len(q.Partitions))
	for i := range out {
		out[i] = broker.TxnVerdict{Err: v.err, Revision: 1}
	}
	return out
}

// txnValues is one transactional batch.
func txnValues(t testing.TB, pid int64, epoch int16, sequence int32, vs ...string) []byte {
	return batch(t, func(b *record.Builder) {
		b.SetProducer(record.Producer{ID: pid, Epoch: epoch, Sequence: sequence, Transactional: true})
		for _, v := range vs {
			b.Add(time.Now().UnixMilli(), nil, []byte(v))
		}
	})
}

func txnProduce(topic *metadata.Topic, batches ...[]byte) *kmsg.ProduceRequest {
	req := produceRequest(topic.Name, topic.ID, -1, batches...)
	req.TransactionID = kmsg.StringPtr("tx")
	return req
}

// marker ends a transaction on partitions of a topic.
func marker(topic *metadata.Topic, pid int64, epoch int16, commit bool, partitions ...int32) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.TransactionVersion = pid, epoch, commit, 4, 2
	tagMarker(&m, 9, "tx")
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = topic.Name, partitions
	tagMarkerTopic(&t, topic.ID)
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	return req
}

func markerCodes(resp *kmsg.WriteTxnMarkersResponse) (codes []Code) {
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, Code(p.ErrorCode))
			}
		}
	}
	return codes
}

// dialInternal connects to the listener of other nodes.
func (n *node) dialInternal() *client {
	n.t.Helper()
	nc, err := n.net.Dial(context.Background(), "client", "node1:9094")
	check(n.t, err)
	n.t.Cleanup(func() { _ = nc.Close() })
	return &client{t: n.t, nc: nc, n: n, id: kmsg.StringPtr("coordinator")}
}

// TestTransactionalProduce: what a producer is told of its coordinator's verdict, by version.
func TestTransactionalProduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 2, nil)
		v := &saysTxn{}
		n.broker.SetTxnVerifier(v)
		c := n.dial()
		for _, tc := range []struct {
			err     error
			version int16
			want    Code
		}{
			{broker.ErrTxnNotAdded, 9, codeInvalidTxnState},
			{broker.ErrTxnNotAdded, 10, codeInvalidTxnState},
			{broker.ErrTxnNotAdded, 11, codeTransactionAbortable},
			{broker.ErrTxnNotAdded, 13, codeTransactionAbortable},
			{broker.ErrInvalidTxnState, 12, codeInvalidTxnState},
			{broker.ErrInvalidProducerEpoch, 11, codeInvalidProducerEpoch},
			{broker.ErrProducerIDMapping, 11, codeInvalidProducerIDMapping},
			{broker.ErrTxnConcurrent, 12, codeNotEnoughReplicas},
			{broker.ErrTxnUnavailable, 3, codeNotEnoughReplicas},
			{errors.New("whatever"), 12, codeNotEnoughReplicas},
		} {
			v.err = tc.err
			resp := c.do(tc.version, txnProduce(topic, txnValues(t, 7, 0, 0, "a"))).(*kmsg.ProduceResponse)
			if got := Code(resp.Topics[0].Partitions[0].ErrorCode); got != tc.want {
				t.Errorf("%v, version %d: code %d, want %d", tc.err, tc.version, got, tc.want)
			}
		}
		for _, version := range []int16{11, 12} {
			v.err, v.asked = nil, nil
			pid := int64(version)
			resp := c.do(version, txnProduce(topic, txnValues(t, pid, 3, 0, "a"), txnValues(t, pid, 3, 0, "b"))).(*kmsg.ProduceResponse)
			for _, p := range resp.Topics[0].Partitions {
				if p.ErrorCode != 0 {
					t.Errorf("version %d: code %d", version, p.ErrorCode)
				}
			}
			if len(v.asked) != 1 || len(v.asked[0].Partitions) != 2 || v.asked[0].TransactionalID != "tx" || v.asked[0].ProducerID != pid ||
				v.asked[0].ProducerEpoch != 3 || v.asked[0].Add != (version >= 12) {
				t.Errorf("version %d: the coordinator was asked %+v, want one question about both partitions", version, v.asked)
			}
			if c.do(version, txnProduce(topic, txnValues(t, pid, 3, 1, "c"))); len(v.asked) != 1 {
				t.Errorf("version %d: asked again about a transaction that is open", version)
			}
		}
	})
}

// TestMarkersOverTheWire: who may write markers, what is answered, and what a consumer, an administrator and a lookup see of it.
func TestMarkersOverTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 2, nil)
		n.broker.SetTxnVerifier(&saysTxn{})
		c, internal := n.dial(), n.dialInternal()
		c.do(12, txnProduce(topic, txnValues(t, 7, 0, 0, "a", "b"), txnValues(t, 7, 0, 0, "c")))
		n.produce(topic, 0, "plain")
		all, err := n.partition(topic, 0).Producers()
		check(t, err)
		if len(all) != 1 || all[0].TxnStart != 0 {
			t.Errorf("producers %+v", all)
		}
		req := fetchFor("t", topic.ID, 0, 0, 10*time.Second)
		req.IsolationLevel = 1
		parked := c.send(12, req)
		time.Sleep(time.Second)
		if got := n.partition(topic, 0).Marks().LSO; got != 0 {
			t.Fatalf("the last stable offset is %d with an open transaction", got)
		}
		other := n.dial()
		if got := markerCodes(other.do(1, marker(topic, 7, 1, false, 0, 1)).(*kmsg.WriteTxnMarkersResponse)); !slices.Equal(got, []Code{codeClusterAuthorizationFailed, codeClusterAuthorizationFailed}) {
			t.Errorf("on a client's listener: %v", got)
		}
		if got := markerCodes(internal.do(2, marker(topic, 7, 1, false, 1, 9, 0)).(*kmsg.WriteTxnMarkersResponse)); !slices.Equal(got, []Code{codeNone, codeUnknownTopicOrPartition, codeNone}) {
			t.Errorf("markers: %v", got)
		}
		began := time.Now()
		p := c.receive(parked, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if time.Since(began) > 0 {
			t.Error("a marker does not wake who waits for it")
		}
		if p.LastStableOffset != 4 || p.HighWatermark != 4 || len(p.AbortedTransactions) != 1 || p.AbortedTransactions[0].ProducerID != 7 || p.AbortedTransactions[0].FirstOffset != 0 {
			t.Errorf("fetched %+v", p)
		}
		req.IsolationLevel = 0
		if p := c.do(12, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.AbortedTransactions != nil || p.LastStableOffset != 4 {
			t.Errorf("read uncommitted: %+v", p)
		}
		d := c.do(0, describeProducers("t", 1)).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
		if len(d.ActiveProducers) != 1 || d.ActiveProducers[0].CoordinatorEpoch != 4 || d.ActiveProducers[0].CurrentTxnStartOffset != -1 || d.ActiveProducers[0].ProducerEpoch != 1 {
			t.Errorf("described %+v", d)
		}
		if got := markerCodes(internal.do(2, marker(topic, 7, 0, true, 1)).(*kmsg.WriteTxnMarkersResponse)); got[0] != codeInvalidProducerEpoch {
			t.Errorf("a marker of an old epoch: %v", got)
		}
		gone := *topic
		gone.ID = record.TopicID{9}
		if got := markerCodes(internal.do(2, marker(&gone, 7, 1, true, 1)).(*kmsg.WriteTxnMarkersResponse)); got[0] != codeUnknownTopicOrPartition {
			t.Errorf("a marker for a deleted topic of the same name: %v", got)
		}
	})
}

// TestListOffsetsCommitted: lookups by readers of committed data end at the last stable offset.
func TestListOffsetsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		n.broker.SetTxnVerifier(&saysTxn{})
		c := n.dial()
		n.produce(topic, 0, "plain")
		time.Sleep(time.Second)
		from := time.Now().UnixMilli()
		c.do(12, txnProduce(topic, txnValues(t, 7, 0, 0, "a", "b")))
		at := func(isolation int8, ts int64) int64 {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID, req.IsolationLevel = -1, isolation
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp = ts
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			return c.do(7, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
		}
		for _, tc := range []struct{ ts, uncommitted, committed int64 }{{-1, 3, 1}, {-2, 0, 0}, {0, 0, 0}, {from, 1, -1}} {
			if got := at(0, tc.ts); got != tc.uncommitted {
				t.Errorf("%d, uncommitted: %d, want %d", tc.ts, got, tc.uncommitted)
			}
			if got := at(1, tc.ts); got != tc.committed {
				t.Errorf("%d, committed: %d, want %d", tc.ts, got, tc.committed)
			}
		}
	})
}

// txn appends a transactional batch, which nobody is asked about.
func (c *cluster) txn(p *broker.Partition, acks int16, raw []byte) error {
	c.t.Helper()
	b := record.Batch(raw)
	var w broker.Wait
	w.Init(1)
	var pend broker.Pending
	p.Append(b, broker.AppendOptions{Acks: acks, Guard: p.GuardTxn(b), Revision: 1}, &w, &pend)
	<-w.C()
	return pend.Err
}

func (c *cluster) mark(p *broker.Partition, m broker.TxnMarker) error {
	c.t.Helper()
	var w broker.Wait
	w.Init(1)
	var pend broker.Pending
	p.AppendMarker(c.t.Context(), &m, &w, &pend)
	select {
	case <-w.C():
	case <-time.After(4 * time.Second):
		p.Expire(&pend)
		<-w.C()
	}
	return pend.Err
}

// committed is what a reader of committed data gets of a node's replica, whatever its role, up to its last stable offset.
func (c *cluster) committed(n record.NodeID, id record.PartitionID) (out []string, lso record.Offset) {
	c.t.Helper()
	p, err := c.nodes[n].broker.Partition(id)
	if err != nil {
		return []string{err.Error()}, -1
	}
	skip := map[int64]bool{}
	for from := record.Offset(0); ; {
		var res broker.ReadResult
		req := broker.ReadRequest{Offset: from, MaxBytes: 1 << 20, FirstWhole: true, ReadCommitted: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch, AnyReplica: true}
		if err = p.Read(&req, &res); err == nil && res.Cold {
			err = p.ReadCold(c.t.Context(), &req, &res)
		}
		if err != nil {
			return []string{err.Error()}, -1
		}
		if len(res.Data) == 0 {
			return out, res.LastStable
		}
		list := res.Aborted
		for rest := res.Data; len(rest) > 0; {
			b, more, err := record.Split(rest)
			check(c.t, err)
			rest, from = more, b.NextOffset()
			for ; len(list) > 0 && list[0].FirstOffset <= b.LastOffset(); list = list[1:] {
				skip[list[0].ProducerID] = true
			}
			switch {
			case b.IsControl():
				delete(skip, b.ProducerID())
			case !skip[b.ProducerID()]:
				out = append(out, contents(c.t, b)...)
			}
		}
	}
}

func (c *cluster) awaitCommitted(id record.PartitionID, want []string, lso record.Offset, nodes ...record.NodeID) {
	c.t.Helper()
	for _, n := range nodes {
		var got []string
		var at record.Offset
		for range 3000 {
			if got, at = c.committed(n, id); slices.Equal(got, want) && at == lso {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !slices.Equal(got, want) || at != lso {
			c.t.Fatalf("committed at node %d: %q up to %d, want %q up to %d", n, got, at, want, lso)
		}
	}
}

// TestTransactionsMoveWithTheLeader: a transaction that is open when its leader goes is open at the next one, and its end is known to
// every replica.
func TestTransactionsMoveWithTheLeader(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint(commit), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				id := c.topic("t", nil)
				p := c.awaitLeader(id, 1)
				check(t, c.txn(p, -1, txnValues(t, 7, 0, 0, "a")))
				c.must(p, "plain")
				check(t, c.txn(p, -1, txnValues(t, 7, 0, 1, "b")))
				c.awaitISR(1, id, 1, 2, 3)
				c.awaitCommitted(id, nil, 0, 1, 2, 3)
				c.nodes[1].stop()
				p = c.awaitLeader(id, 2, 3)
				check(t, c.txn(p, -1, txnValues(t, 7, 0, 2, "c")))
				check(t, c.mark(p, broker.TxnMarker{ProducerID: 7, ProducerEpoch: 1, Bumped: true, Commit: commit, CoordinatorEpoch: 1}))
				want := []string{"plain"}
				if commit {
					want = []string{"a", "plain", "b", "c"}
				}
				c.awaitCommitted(id, want, 5, 2, 3)
				c.start(1)
				c.awaitCommitted(id, want, 5, 1)
			})
		})
	}
}

// TestMarkerLostWithItsLeader: a marker that only a cut-off leader has is not answered and ends nothing; the next leader holds the
// transaction open until it gets its own, and the old one takes that over.
func TestMarkerLostWithItsLeader(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		check(t, c.txn(p, -1, txnValues(t, 7, 0, 0, "a")))
		c.awaitISR(1, id, 1, 2, 3)
		c.isolate(1, true)
		m := broker.TxnMarker{ProducerID: 7, ProducerEpoch: 1, Bumped: true, CoordinatorEpoch: 1}
		if err := c.mark(p, m); err == nil {
			t.Error("a leader that is cut off says that its marker is committed")
		}
		if got := p.Marks().LSO; got != 0 {
			t.Errorf("the last stable offset is %d with a marker that is not committed", got)
		}
		c.nodes[1].kv.SetFaults(memory.Faults{Outage: true}) // its lease ends too
		next := c.awaitLeader(id, 2, 3)
		c.must(next, "new")
		if got := next.Marks().LSO; got != 0 {
			t.Errorf("at the next leader the last stable offset is %d, its transaction is open", got)
		}
		check(t, c.mark(next, m))
		c.nodes[1].kv.SetFaults(memory.Faults{})
		c.isolate(1, false)
		c.awaitISR(2, id, 1, 2, 3)
		c.awaitCommitted(id, []string{"new"}, 3, 1, 2, 3)
		if c.nodes[1].log.Count("replica truncated") == 0 {
			t.Error("the old leader's marker was never truncated: the test tests nothing")
		}
	})
}

// TestStartsAtTierInsideTransaction: a replica that starts at the end of the bucket inside a transaction knows it, and leads with it.
func TestStartsAtTierInsideTransaction(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint(commit), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
				p := c.awaitLeader(id, 1)
				check(t, c.txn(p, -1, txnValues(t, 8, 0, 0, "gone")))
				check(t, c.mark(p, broker.TxnMarker{ProducerID: 8, ProducerEpoch: 1, Bumped: true, CoordinatorEpoch: 1}))
				c.must(p, "old")
				c.await("the log to be in the bucket", func() bool { m := p.Marks(); return m.TieredEnd == 3 && m.Local == 3 })
				c.nodes[3].stop()
				check(t, c.txn(p, -1, txnValues(t, 7, 0, 0, "a")))
				delete(c.peers.disks, 3)
				c.start(3)
				c.awaitISR(1, id, 1, 2, 3)
				c.nodes[1].stop()
				c.nodes[2].stop()
				p = c.awaitLeader(id, 3)
				if err := c.txn(p, 1, txnValues(t, 8, 0, 1, "late")); !errors.Is(err, broker.ErrInvalidProducerEpoch) {
					t.Errorf("a batch of the ended transaction: %v", err)
				}
				c.start(1)
				c.start(2)
				c.awaitISR(3, id, 1, 2, 3)
				check(t, c.mark(p, broker.TxnMarker{ProducerID: 7, ProducerEpoch: 1, Bumped: true, Commit: commit, CoordinatorEpoch: 1}))
				want := []string{"old"}
				if commit {
					want = []string{"old", "a"}
				}
				c.awaitCommitted(id, want, 5, 1, 2, 3)
			})
		})
	}
}
