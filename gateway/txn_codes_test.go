// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// txnFixture is a codeFixture, in which each case has a transactional id of its own. "stuck" is a topic that nobody leads: a
// transaction with it never completes; an oracle has none.
type txnFixture struct {
	*codeFixture
	oracle bool
	id     string
	who    txn.Producer
}

// newTxnFixture asks a node of a test as clients do.
func newTxnFixture(t *testing.T, n *node) *txnFixture {
	return &txnFixture{codeFixture: &codeFixture{t: t, dial: func() (net.Conn, error) { return n.net.Dial(context.Background(), "client", testAddress) }}}
}

// begin brings a new transactional id to a state, with a client of the version.
func (f *txnFixture) begin(state string, version int8) {
	f.t.Helper()
	f.id, f.who = f.name(f.unused()), txn.Nobody
	for {
		got := f.init(4, nil)
		if f.who = (txn.Producer{ID: got.ProducerID, Epoch: got.ProducerEpoch}); got.ErrorCode == 0 {
			break
		}
		if got.ErrorCode != codeCoordinatorNotAvailable.int16() && got.ErrorCode != codeNotCoordinator.int16() && got.ErrorCode != codeCoordinatorLoadInProgress.int16() {
			f.t.Fatalf("beginning: %d", got.ErrorCode)
		}
		find := kmsg.NewPtrFindCoordinatorRequest() // an oracle makes its topic when it is first asked
		find.CoordinatorType, find.CoordinatorKey = transactionCoordinator, f.id
		f.do(f.c, 3, find)
		time.Sleep(100 * time.Millisecond)
	}
	end := int16(4)
	if version == txn.Bumping {
		end = endTxnBumps
	}
	switch state {
	case "new":
	case "open":
		f.must("add", f.add(3, f.name("t")))
	case "group":
		f.must("add offsets", f.addOffsets(3, f.name("empty")))
	case "committing", "aborting":
		f.must("add", f.add(3, f.name("stuck")))
		f.must("end", f.end(end, state == "committing", nil).ErrorCode)
	case "committed", "aborted":
		f.must("add offsets", f.addOffsets(3, f.name("empty")))
		f.must("end", f.end(end, state == "committed", nil).ErrorCode)
		for f.state() != map[string]string{"committed": "CompleteCommit", "aborted": "CompleteAbort"}[state] {
			time.Sleep(10 * time.Millisecond)
		}
	default:
		f.t.Fatal(state)
	}
}

func (f *txnFixture) must(what string, code int16) {
	f.t.Helper()
	if code != 0 {
		f.t.Fatalf("%s: %d", what, code)
	}
}

func (f *txnFixture) init(v int16, change func(*kmsg.InitProducerIDRequest)) *kmsg.InitProducerIDResponse {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &f.id, 60_000, -1, -1
	if change != nil {
		change(r)
	}
	return f.do(f.c, v, r).(*kmsg.InitProducerIDResponse)
}

func (f *txnFixture) add(v int16, topics ...string) int16 {
	return f.addWith(v, nil, topics...)
}

func (f *txnFixture) addWith(v int16, change func(*kmsg.AddPartitionsToTxnRequest), topics ...string) int16 {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch = f.id, f.who.ID, f.who.Epoch
	for _, name := range topics {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = name, []int32{0}
		r.Topics = append(r.Topics, t)
	}
	if change != nil {
		change(r)
	}
	if v >= addPartitionsBatched {
		r.Transactions = append(r.Transactions, kmsg.AddPartitionsToTxnRequestTransaction{TransactionalID: r.TransactionalID, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch})
	}
	resp := f.do(f.c, v, r).(*kmsg.AddPartitionsToTxnResponse)
	if v >= addPartitionsBatched {
		return resp.ErrorCode
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

func (f *txnFixture) addOffsets(v int16, group string) int16 {
	return f.addOffsetsWith(v, group, nil)
}

func (f *txnFixture) addOffsetsWith(v int16, group string, change func(*kmsg.AddOffsetsToTxnRequest)) int16 {
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = f.id, f.who.ID, f.who.Epoch, group
	if change != nil {
		change(r)
	}
	return f.do(f.c, v, r).(*kmsg.AddOffsetsToTxnResponse).ErrorCode
}

func (f *txnFixture) end(v int16, commit bool, change func(*kmsg.EndTxnRequest)) *kmsg.EndTxnResponse {
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = f.id, f.who.ID, f.who.Epoch, commit
	if change != nil {
		change(r)
	}
	return f.do(f.c, v, r).(*kmsg.EndTxnResponse)
}

func (f *txnFixture) commitOffset(v int16, group string, change func(*kmsg.TxnOffsetCommitRequest)) int16 {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group, r.Generation = f.id, f.who.ID, f.who.Epoch, group, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = f.name("t"), f.topic
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = 7
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	if change != nil {
		change(r)
	}
	return f.do(f.c, v, r).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func (f *txnFixture) describe() kmsg.DescribeTransactionsResponseTransactionState {
	r := kmsg.NewPtrDescribeTransactionsRequest()
	r.TransactionalIDs = []string{f.id}
	return f.do(f.c, 0, r).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
}

func (f *txnFixture) state() string { return f.describe().State }

func (f *txnFixture) list(v int16, change func(*kmsg.ListTransactionsRequest)) *kmsg.ListTransactionsResponse {
	r := kmsg.NewPtrListTransactionsRequest()
	r.DurationFilterMillis = -1
	if change != nil {
		change(r)
	}
	return f.do(f.c, v, r).(*kmsg.ListTransactionsResponse)
}

// cases are those of one API; do runs in a state of a new transactional id.
func (f *txnFixture) cases(key int16) func(what, state string, from int16, do func(v int16) int16) codeCase {
	return func(what, state string, from int16, do func(v int16) int16) codeCase {
		return codeCase{key: key, what: what + ", " + state, from: from, do: func(_ *codeFixture, v int16) int16 {
			version := txn.Classic
			if key == 26 && v >= endTxnBumps {
				version = txn.Bumping
			}
			f.begin(state, version)
			return do(v)
		}}
	}
}

func (f *txnFixture) initCodes() (all []codeCase) {
	type req = kmsg.InitProducerIDRequest
	c := f.cases(22)
	init := func(what, state string, from int16, change func(*req)) {
		all = append(all, c(what, state, from, func(v int16) int16 { return f.init(v, change).ErrorCode }))
	}
	named := func(who txn.Producer) func(*req) {
		return func(r *req) { r.ProducerID, r.ProducerEpoch = f.who.ID+who.ID, f.who.Epoch+who.Epoch }
	}
	init("no transactional id", "new", 0, func(r *req) { r.TransactionalID = nil })
	init("empty transactional id", "new", 0, func(r *req) { r.TransactionalID = kmsg.StringPtr("") })
	init("no timeout", "new", 0, func(r *req) { r.TransactionTimeoutMillis = 0 })
	init("timeout too long", "new", 0, func(r *req) { r.TransactionTimeoutMillis = 900_001 })
	init("producer without epoch", "new", 3, func(r *req) { r.ProducerID = 7 })
	for _, state := range []string{"new", "open", "committed", "aborted", "committing"} {
		init("another instance", state, 0, nil)
		init("the same producer", state, 3, named(txn.Producer{}))
		init("another producer id", state, 3, named(txn.Producer{ID: 99}))
		init("a newer epoch", state, 3, named(txn.Producer{Epoch: 1}))
	}
	return all
}

// spoiled are what is wrong with a producer.
var spoiled = []struct {
	what string
	who  txn.Producer
}{{"another producer id", txn.Producer{ID: 99}}, {"an older epoch", txn.Producer{Epoch: -1}}, {"a newer epoch", txn.Producer{Epoch: 1}}}

func (f *txnFixture) addCodes() (all []codeCase) {
	c, o := f.cases(24), f.cases(25)
	for _, state := range []string{"new", "open", "committed", "aborted", "committing", "aborting"} {
		all = append(all, c("in good order", state, 0, func(v int16) int16 { return f.add(v, f.name("t")) }))
	}
	for _, x := range spoiled {
		all = append(all, c(x.what, "open", 0, func(v int16) int16 {
			return f.addWith(v, func(r *kmsg.AddPartitionsToTxnRequest) {
				r.ProducerID, r.ProducerEpoch = f.who.ID+x.who.ID, f.who.Epoch+x.who.Epoch
			}, f.name("t"))
		}))
	}
	all = append(all,
		c("unknown transactional id", "new", 0, func(v int16) int16 {
			return f.addWith(v, func(r *kmsg.AddPartitionsToTxnRequest) { r.TransactionalID += "x" }, f.name("t"))
		}),
		c("empty transactional id", "new", 0, func(v int16) int16 {
			return f.addWith(v, func(r *kmsg.AddPartitionsToTxnRequest) { r.TransactionalID = "" }, f.name("t"))
		}),
		c("unknown topic", "open", 0, func(v int16) int16 { return f.add(v, "unknown") }),
		c("beside an unknown topic", "open", 0, func(v int16) int16 { return f.add(v, f.name("t"), "unknown") }),
	)
	for i := range all {
		all[i].to = addPartitionsBatched - 1
	}
	all = append(all, c("as leaders ask", "open", addPartitionsBatched, func(v int16) int16 { return f.add(v, f.name("t")) }))
	for _, state := range []string{"new", "open", "committed", "aborted", "committing"} {
		all = append(all, o("in good order", state, 0, func(v int16) int16 { return f.addOffsets(v, f.name("empty")) }))
	}
	for _, x := range spoiled {
		all = append(all, o(x.what, "open", 0, func(v int16) int16 {
			return f.addOffsetsWith(v, f.name("empty"), func(r *kmsg.AddOffsetsToTxnRequest) {
				r.ProducerID, r.ProducerEpoch = f.who.ID+x.who.ID, f.who.Epoch+x.who.Epoch
			})
		}))
	}
	return append(all,
		o("unknown transactional id", "new", 0, func(v int16) int16 {
			return f.addOffsetsWith(v, f.name("empty"), func(r *kmsg.AddOffsetsToTxnRequest) { r.TransactionalID += "x" })
		}),
		o("empty transactional id", "new", 0, func(v int16) int16 {
			return f.addOffsetsWith(v, f.name("empty"), func(r *kmsg.AddOffsetsToTxnRequest) { r.TransactionalID = "" })
		}),
		o("empty group", "new", 0, func(v int16) int16 { return f.addOffsets(v, "") }),
	)
}

func (f *txnFixture) endCodes() (all []codeCase) {
	c := f.cases(26)
	type req = kmsg.EndTxnRequest
	for _, state := range []string{"new", "open", "group", "committed", "aborted", "committing", "aborting"} {
		for _, commit := range []bool{true, false} {
			what := map[bool]string{true: "commit", false: "abort"}[commit]
			all = append(all, c(what, state, 0, func(v int16) int16 {
				return f.end(v, commit, func(r *req) {
					if v >= endTxnBumps && state != "new" && state != "open" && state != "group" { // the producer that the first end has given
						r.ProducerEpoch++
					}
				}).ErrorCode
			}))
			if state != "new" && state != "open" && state != "group" {
				all = append(all, c(what+" again", state, endTxnBumps, func(v int16) int16 { return f.end(v, commit, nil).ErrorCode }))
			}
		}
	}
	for _, x := range spoiled {
		all = append(all, c(x.what, "open", 0, func(v int16) int16 {
			return f.end(v, true, func(r *req) { r.ProducerID, r.ProducerEpoch = f.who.ID+x.who.ID, f.who.Epoch+x.who.Epoch }).ErrorCode
		}))
	}
	return append(all,
		c("unknown transactional id", "new", 0, func(v int16) int16 { return f.end(v, true, func(r *req) { r.TransactionalID += "x" }).ErrorCode }),
		c("empty transactional id", "new", 0, func(v int16) int16 { return f.end(v, true, func(r *req) { r.TransactionalID = "" }).ErrorCode }),
	)
}

func (f *txnFixture) commitCodes() (all []codeCase) {
	c := f.cases(28)
	type req = kmsg.TxnOffsetCommitRequest
	commit := func(what, state string, from int16, group string, change func(*req)) {
		all = append(all, c(what, state, from, func(v int16) int16 {
			if group != "" {
				return f.commitOffset(v, f.name(group), change)
			}
			return f.commitOffset(v, "", change)
		}))
	}
	for _, state := range []string{"new", "open", "group", "committed", "committing"} {
		commit("in good order", state, 0, "empty", nil)
	}
	for _, x := range spoiled {
		commit(x.what, "group", 0, "empty", func(r *req) { r.ProducerID, r.ProducerEpoch = f.who.ID+x.who.ID, f.who.Epoch+x.who.Epoch })
	}
	member := func(r *req) { r.MemberID, r.Generation = f.dynamic.id, f.dynamic.generation }
	commit("unknown transactional id", "group", 0, "empty", func(r *req) { r.TransactionalID += "x" })
	commit("no group", "group", 0, "", nil)
	commit("without a group's member, group in use", "open", 5, "active", nil)
	commit("by a member", "open", 5, "active", member)
	commit("unknown member", "open", 5, "active", func(r *req) { member(r); r.MemberID = "x" })
	commit("another generation", "open", 5, "active", func(r *req) { member(r); r.Generation-- })
	commit("static member with an old id", "open", 5, "active", func(r *req) { member(r); r.InstanceID, r.MemberID = kmsg.StringPtr(staticInstance), "old" })
	commit("member of an empty group", "group", 3, "empty", member)
	commit("member of no group", "open", 5, "none", member)
	commit("unknown topic", "group", 0, "empty", func(r *req) { r.Topics[0].Topic, r.Topics[0].TopicID = "unknown", [16]byte{9} })
	commit("unknown partition", "group", 0, "empty", func(r *req) { r.Topics[0].Partitions[0].Partition = 3 })
	commit("metadata too long", "group", 0, "empty", func(r *req) { r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("123456789") })
	commit("metadata just fits", "group", 0, "empty", func(r *req) { r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("12345678") })
	return all
}

func (f *txnFixture) adminCodes() []codeCase {
	d, l := f.cases(65), f.cases(66)
	return []codeCase{
		d("in good order", "open", 0, func(int16) int16 { return f.describe().ErrorCode }),
		d("unknown transactional id", "new", 0, func(int16) int16 { f.id += "x"; return f.describe().ErrorCode }),
		d("empty transactional id", "new", 0, func(int16) int16 { f.id = ""; return f.describe().ErrorCode }),
		l("in good order", "open", 0, func(v int16) int16 { return f.list(v, nil).ErrorCode }),
		l("unknown state", "new", 0, func(v int16) int16 {
			return f.list(v, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"none"} }).ErrorCode
		}),
		l("bad pattern", "new", 2, func(v int16) int16 {
			return f.list(v, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("(") }).ErrorCode
		}),
	}
}

func (f *txnFixture) table() []string {
	rows := append(txnAPIs(), coreAPIs()[slices.IndexFunc(coreAPIs(), func(a api) bool { return a.key == 22 })])
	all := slices.Concat(f.initCodes(), f.addCodes(), f.endCodes(), f.commitCodes(), f.adminCodes())
	if f.oracle {
		all = slices.DeleteFunc(all, func(c codeCase) bool {
			return strings.HasSuffix(c.what, "committing") || strings.HasSuffix(c.what, "aborting")
		})
	}
	return f.ask(rows, all)
}

// TestTxnCodes asks each API of transactions, in each version, in each state, and compares the codes with a golden table. An oracle is
// started as for TestGroupCodes, with offset.metadata.max.bytes=8; txn_codes.kafka lists where we answer otherwise on purpose.
func TestTxnCodes(t *testing.T) {
	if addr := os.Getenv(oracleEnv); addr != "" {
		f := &txnFixture{oracle: true, codeFixture: &codeFixture{t: t, prefix: fmt.Sprintf("T%d-", time.Now().UnixNano()), dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}}
		f.prepare()
		ours := slices.DeleteFunc(readLines(t, "testdata/txn_codes.golden"), func(l string) bool {
			return strings.Contains(l, "committing ") || strings.Contains(l, "aborting ")
		})
		f.golden("testdata/txn_codes.kafka", differences(ours, f.table()))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3", "offset.metadata.max.bytes": "8"}}).coordinating()
		f := newTxnFixture(t, n)
		f.prepare()
		n.unled("stuck")
		f.golden("testdata/txn_codes.golden", f.table())
	})
}

// unled makes a topic on a node that there is not.
func (n *node) unled(name string) {
	n.t.Helper()
	topic, err := n.meta.CreateTopic(context.Background(), metadata.TopicSpec{Name: name, Partitions: [][]record.NodeID{{99}}})
	check(n.t, err)
	n.await(name+" to be seen", func() bool { return n.meta.Image().TopicByID(topic.ID) != nil })
}
