// SPDX-License-Identifier: Apache-2.0

package sim

// groupMutants are bugs of groups, to be found with members of one.
var groupMutants = []mutant{
	{name: "a commit of a member that was put out is accepted", ids: "S23,S24", seeds: 60, set: "TestGroupSeeds", edits: []edit{{"gateway/group/consumer/heartbeat.go",
		"\tcase m == nil:\n\t\treturn group.ErrUnknownMember\n\tcase m.classic == nil && w.OldVersion:", "\tcase m == nil:\n\t\treturn nil\n\tcase m.classic == nil && w.OldVersion:"}}},
	{name: "a partition is given while another member has it", ids: "S23,S24", seeds: 60, set: "TestGroupSeeds", edits: []edit{{"gateway/group/consumer/reconcile.go",
		"if other := g.owners[Place{topic, index}]; other != nil {", "if other := g.owners[Place{topic, index}]; other != nil && other == m {"},
		// The product looks at what it does, and would end the process.
		{"gateway/group/consumer/group.go", "\t\t\t\tinvariant.Check(g.owners[p] == nil || g.owners[p] == m, \"N1: a partition has at most one owner\")\n", "_ = invariant.Check\n"}}},
	{name: "a coordinator writes without a look at whose the shard is", ids: "S23,S24", seeds: 100, set: "TestClassicGroupSeeds", edits: []edit{{"metadata/groups.go",
		"\tc.created(s.keys.coord(shard), Equal, int64(sc.Epoch), ErrFenced)\n", ""}},
		shield: "every change compares the revisions of the group's state and of the offsets that it replaces, and offsets are read from the store"},
	{name: "a coordinator looks neither at whose the shard is nor at what the group has become", ids: "S23,S24", seeds: 100, set: "TestClassicGroupSeeds", edits: []edit{
		{"metadata/groups.go", "\tc.created(s.keys.coord(shard), Equal, int64(sc.Epoch), ErrFenced)\n", ""},
		{"metadata/groups.go", "\t\tc.unchanged(key, g.Rev, conflict)\n", ""}}},
	// Of the classic protocol.
	{name: "a commit of a generation that is over is accepted", ids: "S23,S24", seeds: 40, set: "TestClassicGroupSeeds", edits: []edit{{"gateway/group/member.go",
		"if w.Generation != g.generation {", "if w.Generation > g.generation {"}}},
	{name: "a group is loaded without its generation", ids: "S24", seeds: 40, set: "TestClassicGroupSeeds", edits: []edit{{"gateway/group/encode.go",
		"g.generation = Generation(r.Int())", "_ = r.Int()"}}},
	{name: "a group that waits for its leader is loaded as a stable one", ids: "S24,V6", seeds: 40, set: "TestClassicGroupSeeds", edits: []edit{{"gateway/group/encode.go",
		"\tif g.state != Empty && g.state != Stable {", "\tif g.state == Completing {\n\t\tg.state = Stable\n\t}\n\tif g.state != Empty && g.state != Stable {"}}},
	{name: "a sync of a generation that is over is answered", ids: "S24", seeds: 40, set: "TestClassicGroupSeeds", edits: []edit{{"gateway/group/member.go",
		"case r.Generation != g.generation:", "case r.Generation > g.generation:"}}},
	{name: "a static member's earlier process goes on", ids: "S23,S24", seeds: 100, set: "TestClassicGroupSeeds", edits: []edit{{"gateway/group/group.go",
		"\t\tif m.id != id {\n\t\t\treturn nil, ErrFencedInstance\n\t\t}\n", ""}}},
	{name: "members hear of a generation before it is stored", ids: "S24", seeds: 100, set: "TestClassicGroupSeeds", edits: []edit{{"gateway/coordinator_shard.go",
		"\t\te.held = append(e.held, done)\n", "\t\tdone(nil)\n"}}},
}
