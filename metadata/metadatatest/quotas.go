// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

func named(name string) metadata.QuotaPart {
	return metadata.QuotaPart{Is: metadata.QuotaNamed, Name: name}
}

func testQuotas(t *testing.T, h Harness) {
	p := prefix(t)
	n, other := startNode(t, h, p, 1), startNode(t, h, p, 2)
	ctx := testContext(t)
	byDefault := metadata.QuotaPart{Is: metadata.QuotaDefault}
	alice := metadata.QuotaEntity{User: named("alice/ä,="), ClientID: byDefault}
	all := []metadata.QuotaEntity{
		alice, {User: byDefault}, {User: named("default")}, {User: named("")}, {ClientID: named("default")}, {ClientID: byDefault}, {IP: named("10.0.0.1")},
		{User: named("a"), ClientID: named("b")}, {IP: byDefault},
	}
	alter := func(changes ...metadata.QuotaChange) {
		t.Helper()
		rev, err := n.AlterQuotas(ctx, changes)
		if err != nil {
			t.Fatal(err)
		}
		n.wait(rev)
		other.wait(rev)
	}
	for i, e := range all {
		alter(metadata.QuotaChange{Entity: e, Set: map[string]float64{"x": float64(i) + 0.1, "y": 1e300}})
	}
	before := other.Image().Quotas()
	if before.Len() != len(all) {
		t.Errorf("%d entities, want %d", before.Len(), len(all))
	}
	for i, e := range all {
		if got := before.Of(e); len(got) != 2 || got["x"] != float64(i)+0.1 || got["y"] != 1e300 {
			t.Errorf("%+v has %v", e, got)
		}
	}
	alter(metadata.QuotaChange{Entity: alice, Set: map[string]float64{"z": 7}, Remove: []string{"x", "none"}},
		metadata.QuotaChange{Entity: all[1], Remove: []string{"x", "y"}}, metadata.QuotaChange{Entity: metadata.QuotaEntity{IP: named("none")}, Remove: []string{"x"}},
		metadata.QuotaChange{Entity: alice, Set: map[string]float64{"w": 1}})
	now := other.Image().Quotas()
	if got := now.Of(alice); !maps.Equal(got, map[string]float64{"y": 1e300, "z": 7, "w": 1}) {
		t.Errorf("after a change: %v", got)
	}
	if now.Of(all[1]) != nil || now.Len() != len(all)-1 || before.Len() != len(all) || before.Of(alice)["z"] != 0 {
		t.Errorf("after removal: %v; %d entities, before %d", now.Of(all[1]), now.Len(), before.Len())
	}
	other.create("t", []record.NodeID{2})
	if other.Image().Quotas() != now {
		t.Error("quotas changed with a topic")
	}
	if _, err := n.AlterQuotas(ctx, []metadata.QuotaChange{{Entity: alice, Set: map[string]float64{"x": math.Inf(1)}}}); !errors.Is(err, metadata.ErrRefused) {
		t.Errorf("infinity: %v", err)
	}
	var many []metadata.QuotaChange
	for i := range 100 {
		many = append(many, metadata.QuotaChange{Entity: metadata.QuotaEntity{User: named(fmt.Sprint(i))}, Set: map[string]float64{"x": 1}})
	}
	alter(many...)
	if got := n.Image().Quotas().Len(); got != len(all)-1+100 {
		t.Errorf("%d entities after many", got)
	}
	fresh := startNode(t, h, p, 3)
	eventually(t, "a node loads the quotas", func() bool { return fresh.Image().Quotas().Len() == len(all)-1+100 })
	if got := fresh.Image().Quotas().Of(alice); got["z"] != 7 {
		t.Errorf("loaded: %v", got)
	}
}

// testQuotaLateCopy: a copy of the transaction that set a quota comes after the quota was removed.
func testQuotaLateCopy(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1)
	n.kv.Delay = 200 * time.Millisecond
	sent := 0
	n.kv.SetDecide(func(metadata.Txn) Fate {
		if sent++; sent == 1 {
			return Late
		}
		return Well
	})
	e := metadata.QuotaEntity{ClientID: named("c")}
	if _, err := n.AlterQuotas(testContext(t), []metadata.QuotaChange{{Entity: e, Set: map[string]float64{"x": 1}}}); err != nil {
		t.Fatal(err)
	}
	rev, err := n.AlterQuotas(testContext(t), []metadata.QuotaChange{{Entity: e, Remove: []string{"x"}}})
	if err != nil {
		t.Fatal(err)
	}
	n.kv.Settle()
	if sent < 3 {
		t.Fatalf("%d transactions: the first one was not sent again", sent)
	}
	n.wait(rev)
	last := n.create("t", []record.NodeID{1}) // everything before it is in the image then
	n.wait(last.Rev)
	if got := n.Image().Quotas().Of(e); got != nil {
		t.Errorf("the late copy brought back %v", got)
	}
}
