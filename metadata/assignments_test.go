// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"slices"
	"testing"

	"github.com/varve/varve/record"
)

// TestMoveEnds: what a move waits for once all that it brings is assigned. What is to go may go when the whole target is in sync, or as many
// of it as there would be in sync without the move, and not fewer than the minimum.
func TestMoveEnds(t *testing.T) {
	type nodes = []record.NodeID
	for _, c := range []struct {
		what                     string
		replicas, target, origin nodes
		inSync                   nodes
		minISR                   int  // 0: 1
		eligible                 bool // a replica is noted as eligible
		awaits                   nodes
	}{
		{what: "adds, all in sync", replicas: nodes{1, 3, 2}, target: nodes{1, 2, 3}, origin: nodes{1, 3}, inSync: nodes{1, 2, 3}},
		{what: "adds, one from before is away", replicas: nodes{1, 3, 2}, target: nodes{1, 2, 3}, origin: nodes{1, 3}, inSync: nodes{1, 2}, minISR: 3},
		{what: "adds, the new one is not in sync", replicas: nodes{1, 3, 2}, target: nodes{1, 2, 3}, origin: nodes{1, 3}, inSync: nodes{1, 3}, awaits: nodes{2}},
		{what: "replaces, all in sync", replicas: nodes{1, 2, 3}, target: nodes{1, 3}, origin: nodes{1, 2}, inSync: nodes{1, 2, 3}, minISR: 3},
		{what: "replaces, one that stays is away", replicas: nodes{1, 2, 3}, target: nodes{1, 3}, origin: nodes{1, 2}, inSync: nodes{2, 3}},
		{what: "replaces, one that stays is away and needed", replicas: nodes{1, 2, 3}, target: nodes{1, 3}, origin: nodes{1, 2}, inSync: nodes{2, 3}, minISR: 2, awaits: nodes{1}},
		{what: "replaces, two that stay are away and one is needed", replicas: nodes{1, 2, 3, 4}, target: nodes{1, 2, 4}, origin: nodes{1, 2, 3}, inSync: nodes{3, 4}, minISR: 2, awaits: nodes{1, 2}},
		{what: "replaces, as many as are needed are in sync", replicas: nodes{1, 2, 3, 4}, target: nodes{1, 2, 4}, origin: nodes{1, 2, 3}, inSync: nodes{2, 3, 4}, minISR: 2},
		{what: "replaces what is away, too few are in sync either way", replicas: nodes{1, 2, 3, 4}, target: nodes{2, 3, 4}, origin: nodes{1, 2, 3}, inSync: nodes{3, 4}, minISR: 3},
		{what: "replaces while one is eligible", replicas: nodes{1, 2, 3}, target: nodes{1, 3}, origin: nodes{1, 2}, inSync: nodes{2, 3}, eligible: true, awaits: nodes{1}},
		{what: "replaces, the new one is not in sync", replicas: nodes{1, 2, 3}, target: nodes{1, 3}, origin: nodes{1, 2}, inSync: nodes{1, 2}, awaits: nodes{3}},
		{what: "fewer, all in sync", replicas: nodes{1, 2, 3}, target: nodes{1, 2}, origin: nodes{1, 2, 3}, inSync: nodes{1, 2, 3}, minISR: 3},
		{what: "fewer, one that stays is away", replicas: nodes{1, 2, 3}, target: nodes{1, 2}, origin: nodes{1, 2, 3}, inSync: nodes{1, 3}, awaits: nodes{2}},
		{what: "fewer, what goes is away as well", replicas: nodes{1, 2, 3}, target: nodes{1, 2}, origin: nodes{1, 2, 3}, inSync: nodes{1}, minISR: 2},
		{what: "fewer, none that stays is in sync", replicas: nodes{1, 2}, target: nodes{2}, origin: nodes{1, 2}, inSync: nodes{1}, awaits: nodes{2}},
		{what: "nobody of the origin is in sync, nor of the target", replicas: nodes{1, 2, 3}, target: nodes{2}, origin: nodes{1, 2}, inSync: nodes{3}, awaits: nodes{2}},
	} {
		a := Assignment{Replicas: c.replicas, Move: &Move{Target: c.target, Origin: c.origin}}
		isr := isrOf(c.inSync)
		if c.eligible {
			isr.ELR = []ELRMember{{Node: 9}}
		}
		next, ok := a.Step(&isr, max(1, c.minISR))
		if ends := ok && next.Move == nil && slices.Equal(next.Replicas, c.target); ends != (c.awaits == nil) || ok != ends {
			t.Errorf("%s: the next step is %+v, %v", c.what, next, ok)
		}
		if enter, leave := a.Awaits(&isr, max(1, c.minISR)); !slices.Equal(enter, c.awaits) || leave != nil {
			t.Errorf("%s: waits for %v, and for %v to leave, want %v", c.what, enter, leave, c.awaits)
		}
	}
}

// TestMoveAwaitsLeaving: a replica that is in the in-sync set by an earlier assignment comes last, and is waited for to leave that set.
func TestMoveAwaitsLeaving(t *testing.T) {
	type nodes = []record.NodeID
	a := Assignment{Replicas: nodes{1, 2}, Move: &Move{Target: nodes{3, 4}, Origin: nodes{1, 2}}}
	isr := isrOf(nodes{3})
	next, ok := a.Step(&isr, 1)
	if enter, leave := a.Awaits(&isr, 1); !ok || !slices.Equal(next.Replicas, nodes{1, 2, 4}) || enter != nil || leave != nil {
		t.Errorf("%+v, %v; waits for %v, and for %v to leave", next, ok, enter, leave)
	}
	isr = isrOf(nodes{3, 4})
	if enter, leave := next.Awaits(&isr, 1); enter != nil || !slices.Equal(leave, nodes{3}) {
		t.Errorf("waits for %v, and for %v to leave", enter, leave)
	}
	isr = isrOf(nodes{4})
	if last, ok := next.Step(&isr, 1); !ok || !slices.Equal(last.Replicas, nodes{1, 2, 4, 3}) {
		t.Errorf("%+v, %v", last, ok)
	}
}

// TestMoveKeepsWhatIsNeeded: what was brought for an earlier target is listed as going, not waited for, and goes once enough are in sync without.
func TestMoveKeepsWhatIsNeeded(t *testing.T) {
	type nodes = []record.NodeID
	a := Assignment{Replicas: nodes{1, 2, 3, 4}, Move: &Move{Target: nodes{2, 4}, Origin: nodes{1, 2}}}
	if got := a.Removing(); !slices.Equal(got, nodes{1, 3}) {
		t.Errorf("removing %v", got)
	}
	for _, c := range []struct{ inSync, want nodes }{
		{nodes{1, 3}, nil},
		{nodes{1, 3, 4}, nodes{1, 2, 4}},
		{nodes{1}, nodes{1, 2, 4}},
		{nodes{3}, nil},
	} {
		isr := isrOf(c.inSync)
		if next, ok := a.Step(&isr, 2); ok != (c.want != nil) || ok && (!slices.Equal(next.Replicas, c.want) || next.Move == nil) {
			t.Errorf("in sync %v: %+v, %v", c.inSync, next, ok)
		}
	}
	isr := isrOf(nodes{1, 2, 4})
	a.Replicas = nodes{1, 2, 4}
	if next, ok := a.Step(&isr, 2); !ok || next.Move != nil {
		t.Errorf("%+v, %v", next, ok)
	}
}

func isrOf(nodes []record.NodeID) ISRState {
	s := ISRState{Rev: 1}
	for _, n := range nodes {
		s.Members = append(s.Members, ISRMember{Node: n})
	}
	return s
}
