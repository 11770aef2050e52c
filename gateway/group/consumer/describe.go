// SPDX-License-Identifier: Apache-2.0

package consumer

import "slices"

// Description is the group as administration sees it.
type Description struct {
	State              State
	Epoch, TargetEpoch int32
	Assignor           string
	Members            []MemberDescription
}

// MemberDescription is one member of a Description.
type MemberDescription struct {
	ID               string
	Instance, Rack   *string
	Epoch            int32
	ClientID, Host   string
	Topics           []string
	Regex            string
	Assigned, Target Partitions
	Giving           Partitions // what it may still have and must give up
	Classic          bool
}

// Describe tells about the group.
func (g *Group) Describe(c Config) Description {
	d := Description{State: g.State(), Epoch: g.epoch, TargetEpoch: g.targetEpoch, Assignor: g.assignor(c)}
	for _, m := range g.members {
		d.Members = append(d.Members, MemberDescription{
			ID: m.id, Instance: m.instance, Rack: m.rack, Epoch: m.epoch, ClientID: m.clientID, Host: m.host, Topics: slices.Clone(m.topics), Regex: m.regex,
			Assigned: m.assigned.partitions(), Target: m.target, Giving: m.giving.partitions(), Classic: m.classic != nil,
		})
	}
	return d
}
