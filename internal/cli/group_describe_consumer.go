// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// consumerType is what brokers call groups of the consumer protocol.
const consumerType = "consumer"

// describeConsumerGroup describes a group of the consumer protocol; false when the group is none, or the broker knows none.
func describeConsumerGroup(ctx context.Context, adm *admin, id string, owners map[string]map[int32]string) (describedGroup, bool, error) {
	answers, err := adm.DescribeConsumerGroups(ctx, id)
	if err != nil {
		return describedGroup{}, false, nil // an older broker: the classic request tells what is wrong, if anything is
	}
	g, ok := answers[id]
	switch {
	case !ok, errors.Is(g.Err, kerr.GroupIDNotFound), errors.Is(g.Err, kerr.UnsupportedVersion):
		return describedGroup{}, false, nil
	case g.Err != nil:
		return describedGroup{}, false, explain("describing group "+id, g.Err)
	}
	d := describedGroup{
		Group: id, State: g.State, Type: consumerType, ProtocolType: consumerType, Protocol: g.AssignorName, Coordinator: g.Coordinator.NodeID,
		Epoch: &g.Epoch, TargetEpoch: &g.AssignmentEpoch, Members: []describedMember{}, Partitions: []groupPartition{},
	}
	for i := range g.Members {
		d.Members = append(d.Members, describeConsumerMember(&g.Members[i], owners))
	}
	return d, true, nil
}

func describeConsumerMember(m *kadm.ConsumerGroupMember, owners map[string]map[int32]string) describedMember {
	d := describedMember{Member: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Assigned: map[string][]int32{}, Epoch: &m.MemberEpoch}
	if m.InstanceID != nil {
		d.Instance = *m.InstanceID
	}
	if m.MemberType == 0 {
		d.Protocol = "classic"
	}
	for topic, partitions := range m.Assignment {
		for p := range partitions {
			d.Assigned[topic] = append(d.Assigned[topic], p)
			own(owners, topic, p, m.MemberID)
		}
		slices.Sort(d.Assigned[topic])
	}
	return d
}

func own(owners map[string]map[int32]string, topic string, partition int32, member string) {
	if owners[topic] == nil {
		owners[topic] = map[int32]string{}
	}
	owners[topic][partition] = member
}

// epochs is how a group of the consumer protocol stands, for people.
func (d *describedGroup) epochs() string {
	if d.Epoch == nil {
		return ""
	}
	text := fmt.Sprintf("  epoch %d", *d.Epoch)
	if *d.TargetEpoch != *d.Epoch {
		text += fmt.Sprintf(" (assigned at %d)", *d.TargetEpoch)
	}
	return text
}
