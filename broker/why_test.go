// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TestWhyUnstable: a transaction that is open is named as what readers of committed data wait for.
func TestWhyUnstable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.broker.SetTxnVerifier(confirm())
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1))
		check(t, p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)).Err)
		said := func() bool {
			return slices.ContainsFunc(n.broker.Why(p.id), func(line string) bool {
				return strings.Contains(line, "wait at offset 1: producer 7 has had a transaction open there")
			})
		}
		if !said() {
			t.Errorf("the open transaction is not told: %q", n.broker.Why(p.id))
		}
		if check(t, p.mark(t, TxnMarker{ProducerID: 7, ProducerEpoch: 0}).Err); said() {
			t.Errorf("the transaction is over: %q", n.broker.Why(p.id))
		}
	})
}

// TestWhyEmpty: a partition without records is called empty, and nothing is said about what would be sealed.
func TestWhyEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		expect := func(want string, others ...string) {
			t.Helper()
			got := n.broker.Why(p.id)
			said := func(text string) bool {
				return slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, text) })
			}
			if !said(want) || slices.ContainsFunc(others, said) {
				t.Errorf("want %q and none of %q:\n%s", want, others, strings.Join(got, "\n"))
			}
		}
		expect("empty: it never had a record", "sealed", "everything is in the bucket")
		p.must(t, built(t, nobody, 1, 2, 3))
		expect("end 3", "empty") // and what is not sealed, or what is under way
		if _, err := p.DeleteRecords(context.Background(), 3); err != nil {
			t.Fatal(err)
		}
		expect("empty: nothing below offset 3 is left", "sealed", "everything is in the bucket")
	})
}

// TestWhyMoving: a move that stands still says what it waits for, and how it is given up if somebody asked for it.
func TestWhyMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		o := startOther(t, n, p)
		mark := func(change func(context.Context, record.NodeID) (metadata.Revision, error)) {
			rev, err := change(t.Context(), 2)
			check(t, err)
			check(t, n.meta.WaitFor(t.Context(), rev))
		}
		mark(n.meta.Drain)
		o.stop()
		said := func(auto bool, want string) {
			t.Helper()
			move := metadata.Assignment{Replicas: []record.NodeID{testNode, 2}, Move: &metadata.Move{Target: []record.NodeID{2}, Origin: []record.NodeID{testNode}, Auto: auto}}
			topic, err := n.meta.AlterAssignments(t.Context(), n.meta.Image().TopicByID(p.id.Topic), []metadata.AssignmentChange{{Next: move, ISR: o.state().ISR.Rev}})
			check(t, err)
			check(t, n.meta.WaitFor(t.Context(), topic.Rev))
			if got := n.broker.Why(p.id); !slices.Contains(got, want) {
				t.Errorf("want %q:\n%s", want, strings.Join(got, "\n"))
			}
		}
		said(true, "replicas [1 2] move to [2]: the move waits for node 2 (away, drains) to be in sync")
		mark(n.meta.Undrain)
		said(false, "replicas [1 2] move to [2]: the move waits for node 2 (away) to be in sync; somebody asked for it, `varve reassign cancel` gives it up")
	})
}
