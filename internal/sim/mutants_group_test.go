// SPDX-License-Identifier: Apache-2.0

package sim

// groupMutants are bugs of groups of the consumer protocol, to be found with members of one.
var groupMutants = []mutant{
	{name: "a commit of a member that was put out is accepted", ids: "S23,S24", seeds: 60, set: "TestGroupSeeds", edits: []edit{{"gateway/group/consumer/heartbeat.go",
		"\tcase m == nil:\n\t\treturn group.ErrUnknownMember\n\tcase m.classic == nil && w.OldVersion:", "\tcase m == nil:\n\t\treturn nil\n\tcase m.classic == nil && w.OldVersion:"}}},
	{name: "a partition is given while another member has it", ids: "S23,S24,V6", seeds: 60, set: "TestGroupSeeds", edits: []edit{{"gateway/group/consumer/reconcile.go",
		"if other := g.owners[Place{topic, index}]; other != nil {", "if other := g.owners[Place{topic, index}]; other != nil && other == m {"}}},
	{name: "a coordinator writes without a look at whose the shard is", ids: "S23,S24", seeds: 100, set: "TestGroupSeeds", edits: []edit{{"metadata/groups.go",
		"\tc.created(s.keys.coord(shard), Equal, int64(sc.Epoch), ErrFenced)\n", ""}}},
}
