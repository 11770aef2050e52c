// SPDX-License-Identifier: Apache-2.0

package sim

// forked are the statements that replicas break which hold different logs, or lack what was acknowledged.
const forked = lost + ",S4,S8,S9,S10,S12,S27"

// clusterMutants are bugs of replication and leadership, to be found with three nodes.
func clusterMutants() []mutant {
	list := []mutant{
		// What is acknowledged (faults A1, A2, A12, B1, I16).
		{name: "high watermark without the leader's own durable end", ids: forked, seeds: 100, edits: []edit{
			{"broker/isr/state.go", "\tend := s.ownEnd\n\tfor", "\tend := record.Offset(1 << 62)\n\tfor"},
			{"broker/isr/state.go", "\tif m.Node == s.self {\n\t\treturn s.ownEnd\n", "\tif m.Node == s.self {\n\t\treturn 1 << 62\n"},
		}},
		{name: "followers acknowledge what they have appended", ids: forked, seeds: 100, edits: []edit{
			{"broker/followfetch.go", "at := w.p.log.DurableEnd()", "at := w.p.log.AppendedEnd()"},
			{"broker/followfetch.go", "return f.awaitDurable(ctx, appended)", "f.peer.in = nil\n\tfor _, w := range appended {\n\t\tw.p.learn(w.role, w.hw, record.NoOffset)\n\t}\n\treturn nil"},
		}},
		{name: "change of the in-sync set counts before it is known", ids: forked, seeds: 100, edits: []edit{{"broker/isrwork.go",
			"lead.isr.Propose(isr.Change{Members: members(next.Members), ELR: elr(next.ELR)})", "_ = isr.Change{}\n\t\tlead.isr.Adopt(members(next.Members), elr(next.ELR))"}}},
		{name: "high watermark moves below the minimum and with eligible replicas", ids: forked, seeds: 100, edits: []edit{{"broker/isr/state.go",
			"if !s.Enough() || len(s.elr) > 0 {", "if len(s.members) == 0 {"}}},
		{name: "what waits is acknowledged when the leadership ends", ids: forked, seeds: 40, edits: []edit{{"broker/roles.go",
			"decideAll(ones, err)\n\tdecideAll(alls, err)\n\tp.notify()", "decideAll(ones, err)\n\tdecideAll(alls, nil)\n\tp.notify()"}}},
		{name: "no check for enough replicas before an append", ids: "S3", seeds: 100, edits: []edit{{"broker/partition.go",
			"if acks == -1 && !lead.isr.Enough() {", "if false {"}, {"broker/partition.go", "err = ErrNotEnoughReplicasAfterAppend", "err = ErrNotEnoughReplicas"}}},
		{name: "duplicate answered before it is committed", ids: forked, seeds: 100, edits: []edit{{"broker/partition.go",
			"return p.queueLocked(lead, o, pend, v.duplicate.next()), nil",
			"return p.log.DurableEnd() < v.duplicate.next() && p.queueLocked(lead, o, pend, v.duplicate.next()), nil"}}},
		{name: "a new leader takes all that it has for committed", ids: forked, seeds: 100, edits: []edit{{"broker/roles.go",
			"HW: min(known, durable), EpochStart", "HW: max(min(known, durable), durable), EpochStart"}}},
		{name: "a new leader tells the latest offset before it knows what is committed", ids: forked, seeds: 100, edits: []edit{{"broker/isr/state.go",
			"return s.hw >= s.epochAt", "return s.hw >= 0"}}},
		// Where logs part (faults A3 to A8, A23).
		{name: "follower truncates to its high watermark", ids: forked, seeds: 100, edits: []edit{{"broker/follow.go",
			"func (p *Partition) beginFollowing(f *following) error {\n", "func (p *Partition) beginFollowing(f *following) error {\n\t_ = p.log.Truncate(max(p.log.Meta().HighWatermark, p.log.Start()))\n"}}},
		{name: "a follower's tail is not compared with the leader's", ids: forked, seeds: 60, edits: []edit{{"broker/replica.go",
			"\tif req.LastFetchedEpoch == record.NoEpoch {\n\t\treturn false\n", "\tif true {\n\t\treturn false\n"}}},
		{name: "an answer to an earlier role is appended", shield: "what it brings lies at the end of the log, of an earlier epoch: the next fetch says so, and the leader " +
			"compares (the mutant before this one)", edits: []edit{{"broker/follow.go",
			"\tif p.mu.follow != f {\n\t\treturn p.mu.end, errStaleRole\n", "\tif false {\n\t\treturn p.mu.end, errStaleRole\n"}}},
		{name: "no check of the epoch of a follower's fetch", shield: "a fetch of another epoch counts only where the follower's log agrees with the leader's by its last epoch", edits: []edit{
			{"broker/replica.go", "if err != nil || req.CurrentEpoch != lead.Epoch || ", "if err != nil || "},
			{"broker/read.go", "if err := checkEpoch(req.CurrentEpoch, epoch); err != nil {", "if err := checkEpoch(req.CurrentEpoch, epoch); err != nil && req.Replica == nil {"},
		}},
		{name: "follower does not adopt the epoch", shield: "an image never goes back, and an old leader that hears from this follower lacks the acknowledgement of the new one, " +
			"which is in its in-sync set", edits: []edit{
			{"broker/follow.go", "return p.log.AdoptEpoch(e)", "return nil, nil"},
			{"broker/follow.go", "p.log.Meta().CurrentEpoch != f.epoch || ", ""},
			{"broker/follow.go", "known := p.log.Meta().CurrentEpoch; known > e {", "known := p.log.Meta().CurrentEpoch; false && known > e {"},
		}},
		// Who leads, and who may (faults A9, A20, B2, K1).
		{name: "takeover without the compare of the registration", ids: forked, seeds: 400, edits: []edit{
			{"metadata/takeover.go", "if b := t.brokers[old.Node]; old.Rev != 0 && b != nil && b.Incarnation == old.Incarnation {", "if false {"},
			{"metadata/takeover.go", "c.created(key, NotEqual, int64(old.Incarnation), ErrLeaderAlive)", "_ = key"},
			{"metadata/takeover.go", "\t\treturn l, false, fmt.Errorf(\"%w: node %d\", ErrLeaderAlive, old.Node)\n", "\t\treturn l, false, ErrLeaderAlive\n"},
			// And somebody tries: who gets no answer from the leader for a second.
			{"broker/limits.go", "peerFetchTimeout = 5 * time.Second", "peerFetchTimeout = time.Second"},
			{"broker/followfetch.go", "f.backoff = min(max(2*f.backoff, fetchBackoffMin), fetchBackoffMax)\n",
				"f.backoff = min(max(2*f.backoff, fetchBackoffMin), fetchBackoffMax)\n\t\t\tfor id := range f.parts {\n\t\t\t\tf.b.dirty.addPartition(id)\n\t\t\t}\n\t\t\tf.b.kick()\n"},
			{"broker/election.go", "case state.Leader.Node != b.cfg.Node.Node && leader != nil && leader.Incarnation == state.Leader.Incarnation:",
				"case state.Leader.Node != b.cfg.Node.Node && leader != nil && leader.Incarnation == state.Leader.Incarnation && (b.sources[id] == nil || b.sources[id].backoff == 0):"},
		}},
		{name: "a leader goes on after its lease", ids: forked, seeds: 100, edits: []edit{{"broker/broker.go",
			"return s == b.session.Load() && s.Alive() }", "return true }"}}},
		{name: "producers forgotten by a takeover", ids: "S2,S5,V8", seeds: 40, edits: []edit{{"broker/roles.go",
			"\tproducers, err := p.loadProducers()\n\tif err != nil {\n\t\treturn err\n\t}\n\tdurable", "\tproducers := newProducers(p.log.Start())\n\tdurable"}}},
		{name: "replica comes into the in-sync set whatever it holds", ids: forked, seeds: 200, edits: []edit{
			{"broker/replica.go", " || f.end < max(p.mu.hw, lead.isr.EpochStart()) {", " {"},
			{"broker/replica.go", "f.lost = member && (m.StoreID != r.Store || req.Offset < p.mu.hw)", "f.lost = member && m.StoreID != r.Store"},
			// With the floor it does not stand.
			{"broker/replica.go", "MinISR: lead.isr.MinISR(), HWFloor: p.mu.hw}", "MinISR: lead.isr.MinISR()}"},
		}},
		{name: "a lost disk counts as the member that it was", ids: forked, seeds: 100, edits: []edit{
			{"metadata/takeover.go", "if m, ok := old.Member(me.Node); ok && m.StoreID == me.StoreID {", "if _, ok := old.Member(me.Node); ok {"},
			{"broker/election.go", "case n == me.Node && m.StoreID == me.StoreID:", "case n == me.Node:"},
			{"broker/replica.go", "f.lost = member && (m.StoreID != r.Store || req.Offset < p.mu.hw)", "f.lost = member && m.Node == 0"},
			{"broker/roles.go", "return ok && len(state.ISR.Members) > 1 &&", "return ok && len(state.ISR.Members) > 3 &&"},
			{"broker/roles.go", "committed := max(l.Head.TieredEnd, l.Head.LogStart, l.ISR.HWFloor)", "committed := max(l.Head.TieredEnd, l.Head.LogStart)"},
		}},
		{name: "a lost disk counts as the eligible replica that it was", ids: forked, seeds: 200, edits: []edit{
			{"metadata/takeover.go", "if !slices.Contains(old.ELR, ELRMember{me.Node, me.StoreID}) {",
				"if !slices.ContainsFunc(old.ELR, func(e ELRMember) bool { return e.Node == me.Node }) {"},
			{"broker/election.go", "case m.Node == me.Node && m.StoreID == me.StoreID:", "case m.Node == me.Node:"},
			// What it must have by the key of the in-sync set it does not have.
			{"broker/roles.go", "return ok && len(state.ISR.Members) > 1 &&", "return ok && len(state.ISR.Members) > 3 &&"},
			{"broker/roles.go", "committed := max(l.Head.TieredEnd, l.Head.LogStart, l.ISR.HWFloor)", "committed := max(l.Head.TieredEnd, l.Head.LogStart)"},
		}},
		{name: "leadership goes to one that lacks something", shield: "what is acknowledged is on every member of the in-sync set, and only to those it goes", edits: []edit{
			{"broker/transfer.go", "f.Store == to.StoreID && f.end == p.mu.end\n", "f.Store == to.StoreID\n"}}},
		{name: "leadership goes to one that is not in sync", ids: forked, seeds: 100, edits: []edit{
			{"broker/transfer.go", "if n == me || !member || b == nil || img.Draining(n) && (assigned || soon > 0) {\n\t\t\tcontinue\n\t\t}",
				"if n == me || b == nil || img.Draining(n) {\n\t\t\tcontinue\n\t\t}\n\t\tif !member {\n\t\t\treturn metadata.ISRMember{Node: n, Incarnation: b.Incarnation, StoreID: b.StoreID}, true, 0\n\t\t}"},
			{"broker/transfer.go", "caughtUp := f != nil && f.Incarnation == to.Incarnation && f.Store == to.StoreID && f.end == p.mu.end\n", "caughtUp := f == nil || f.end >= 0\n"},
			{"metadata/isr.go", "if !ok || m.StoreID != to.StoreID {", "if ok && m.StoreID != to.StoreID {"},
			{"metadata/isr.go", "invariant.Check(leads, ", "invariant.Check(leads || true, "},
			{"broker/roles.go", "committed := max(l.Head.TieredEnd, l.Head.LogStart, l.ISR.HWFloor)", "committed := max(l.Head.TieredEnd, l.Head.LogStart)"},
		}},
		{name: "answers while the leadership is handed over", ids: forked, seeds: 200, edits: []edit{{"broker/transfer.go",
			"\tlead.sealed = true\n", ""}}},
		// Reading from followers (faults A7, A13).
		{name: "a follower gives what lies above its high watermark", ids: "S2,S27", seeds: 60, edits: []edit{{"broker/read.go",
			"plan := readPlan{from: req.Offset, bound: p.mu.hw}", "plan := readPlan{from: req.Offset, bound: p.mu.hw}\n\tif p.mu.follow != nil {\n\t\tplan.bound = p.log.AppendedEnd()\n\t}"}}},
		{name: "a follower takes the leader's high watermark for its own", shield: "below a high watermark all logs are the same, whenever they reach it", edits: []edit{{"broker/follow.go",
			"if to := min(hw, p.log.AppendedEnd()); to > p.mu.hw {", "if to := hw; to > p.mu.hw {"}}},
		{name: "a high watermark counts for a log that parts from the leader's", ids: "S1,S2,S7,S12,S27", seeds: 100, edits: []edit{{"broker/followfetch.go",
			"\t\t// The rest of such an answer is void (A7).\n", "\t\tp.learn(w.role, record.Offset(r.HighWatermark), record.NoOffset)\n"}}},
		// Quotas.
		{name: "quotas that were taken away hold on", ids: "V1,V8", seeds: 40, edits: []edit{{"gateway/throttle.go", "q.current.Store(quota.NewTable(all))",
			"if t := quota.NewTable(all); t != nil {\n\t\t\tq.current.Store(t)\n\t\t}"}}},
		// Sealing (faults C4, C19).
		{name: "a segment is committed without a look at who leads", ids: forked + ",S19,S21,S22", seeds: 100, edits: []edit{
			{"metadata/head.go", "\t\tc.unchanged(s.keys.leader(l.ID), l.LeaderRev, ErrFenced)\n\t\tc.unchanged(s.keys.head(l.ID), v.head.Rev, ErrConflict)\n\t\tnext, err",
				"\t\tc.unchanged(s.keys.head(l.ID), v.head.Rev, ErrConflict)\n\t\tnext, err"},
			{"metadata/head.go", "if found[keys[0]].ModRevision != l.LeaderRev {", "if false {"},
		}},
	}
	for i := range list {
		list[i].set = "TestClusterSeeds"
	}
	return list
}
