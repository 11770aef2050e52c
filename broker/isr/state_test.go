// SPDX-License-Identifier: Apache-2.0

package isr

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

func members(nodes ...record.NodeID) []Member {
	var ms []Member
	for _, n := range nodes {
		ms = append(ms, Member{Node: n})
	}
	return ms
}

func TestOneReplicaCommitsWhatIsDurable(t *testing.T) {
	s := New(Start{Self: 1, Replicas: 1, MinISR: 2, Members: members(1)})
	if !s.Enough() {
		t.Fatal("min ISR in force must be capped by the replication factor")
	}
	if moved := s.OwnDurable(7); !moved || s.HighWatermark() != 7 {
		t.Fatalf("high watermark %d, want 7", s.HighWatermark())
	}
}

func TestHighWatermarkWaitsForTheSlowestMember(t *testing.T) {
	s := New(Start{Self: 1, Replicas: 3, MinISR: 2, Members: members(1, 2, 3)})
	s.OwnDurable(10)
	s.Acknowledged(2, 9)
	if s.HighWatermark() != 0 {
		t.Fatal("moved without node 3")
	}
	s.Acknowledged(3, 4)
	if s.HighWatermark() != 4 {
		t.Fatalf("high watermark %d, want 4", s.HighWatermark())
	}
	s.Propose(Change{Members: members(1, 2)})
	s.Acknowledged(2, 10)
	if s.HighWatermark() != 4 {
		t.Fatal("I2: a shrink counted before it was decided")
	}
	if moved := s.Decided(true); !moved || s.HighWatermark() != 10 {
		t.Fatalf("high watermark %d, want 10 as soon as the shrink is decided", s.HighWatermark())
	}
}

func TestHighWatermarkStandsStillBelowMinISR(t *testing.T) {
	s := New(Start{Self: 1, Replicas: 3, MinISR: 2, Members: members(1), ELR: members(2)})
	s.OwnDurable(5)
	if s.HighWatermark() != 0 || s.Enough() {
		t.Fatal("moved below min ISR")
	}
	s.SetMinISR(1)
	if s.HighWatermark() != 0 {
		t.Fatal("moved although the ELR is not empty")
	}
	s.Propose(Change{Members: members(1)})
	s.Decided(true)
	if s.HighWatermark() != 5 {
		t.Fatalf("high watermark %d, want 5 once the ELR is empty", s.HighWatermark())
	}
}

// TestAgainstDefinition checks I1 after every step of random runs, from the definition alone.
func TestAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "replicas")
		var all []Member
		for i := range n {
			all = append(all, Member{Node: record.NodeID(i + 1)})
		}
		minISR := rapid.IntRange(1, 4).Draw(t, "min ISR")
		s := New(Start{Self: 1, Replicas: n, MinISR: minISR, Members: all})
		ends := make([]record.Offset, n+1)
		committed, inFlight := all, []Member(nil)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := s.HighWatermark()
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				ends[1] += record.Offset(rapid.IntRange(0, 5).Draw(t, "own"))
				s.OwnDurable(ends[1])
			case 1:
				node := rapid.IntRange(1, n).Draw(t, "node")
				if node > 1 {
					ends[node] = min(ends[1], ends[node]+record.Offset(rapid.IntRange(0, 5).Draw(t, "ack")))
					s.Acknowledged(record.NodeID(node), ends[node])
				}
			case 2:
				if inFlight == nil {
					inFlight = []Member{all[0]}
					for _, m := range all[1:] {
						if rapid.Bool().Draw(t, "in") {
							inFlight = append(inFlight, m)
						}
					}
					s.Propose(Change{Members: inFlight})
				}
			case 3:
				if inFlight != nil {
					applied := rapid.Bool().Draw(t, "applied")
					if applied {
						committed = inFlight
					}
					s.Decided(applied)
					inFlight = nil
				}
			}
			hw := s.HighWatermark()
			if hw < before {
				t.Fatalf("I1: high watermark went back from %d to %d", before, hw)
			}
			if hw == before {
				continue
			}
			if len(committed) < min(minISR, n) {
				t.Fatalf("I1: moved to %d with %d members", hw, len(committed))
			}
			for _, m := range append(append([]Member(nil), committed...), inFlight...) {
				if hw > ends[m.Node] {
					t.Fatalf("I1: high watermark %d above the durable end %d of node %d", hw, ends[m.Node], m.Node)
				}
			}
		}
	})
}
