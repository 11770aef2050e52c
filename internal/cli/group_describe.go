// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type describedGroup struct {
	Group        string            `json:"group"`
	State        string            `json:"state"`
	Type         string            `json:"type"`
	ProtocolType string            `json:"protocolType"`
	Protocol     string            `json:"protocol,omitempty"`
	Epoch        *int32            `json:"epoch,omitempty"` // of a group of the consumer protocol, as is the next
	TargetEpoch  *int32            `json:"assignmentEpoch,omitempty"`
	Coordinator  int32             `json:"coordinator"`
	Members      []describedMember `json:"members"`
	Partitions   []groupPartition  `json:"partitions"`
	Lag          int64             `json:"lag"` // of all partitions of which it is known
}

type describedMember struct {
	Member   string             `json:"member"`
	Instance string             `json:"instance,omitempty"`
	ClientID string             `json:"clientId"`
	Host     string             `json:"host"`
	Protocol string             `json:"protocol,omitempty"` // classic, for such a member of a group of the consumer protocol
	Epoch    *int32             `json:"epoch,omitempty"`
	Assigned map[string][]int32 `json:"assigned"`
}

// groupPartition is a partition that the group has committed or that a member reads. A null is unknown.
type groupPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
	Member    string `json:"member,omitempty"`
	Metadata  string `json:"metadata,omitempty"`
}

func newGroupDescribeCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe GROUP...", Short: "Show members, assignment, committed offsets and lag of groups", Args: someArgs("GROUP"),
	}
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		described, failures := []describedGroup{}, []error{}
		for _, id := range ids {
			d, err := describeGroup(ctx, adm, id)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			described = append(described, d)
		}
		if *out == outputJSON {
			err = writeJSON(s.out, described)
		} else {
			err = writeGroups(s.out, described)
		}
		if err != nil {
			return err
		}
		return reportFailures(cmd, failures)
	}
	return cmd
}

func describeGroup(ctx context.Context, adm *admin, id string) (describedGroup, error) {
	owners := map[string]map[int32]string{}
	d, found, err := describeConsumerGroup(ctx, adm, id, owners)
	if err == nil && !found {
		d, err = describeClassicGroup(ctx, adm, id, owners)
	}
	if err != nil {
		return d, err
	}
	committed, err := committedOffsets(ctx, adm, id)
	if err != nil {
		return d, err
	}
	return d, d.fill(ctx, adm, committed, owners)
}

func describeClassicGroup(ctx context.Context, adm *admin, id string, owners map[string]map[int32]string) (describedGroup, error) {
	answers, err := adm.DescribeGroups(ctx, id)
	if err != nil {
		return describedGroup{}, explain("describing group "+id, err)
	}
	g := answers[id]
	if g.Err != nil {
		return describedGroup{}, answered("describing group "+id, g.Err, g.ErrMessage)
	}
	if g.State == "Dead" { // what brokers before Kafka 4.0 say of groups that are not there
		return describedGroup{}, fmt.Errorf("describing group %s: there is no such group; see `varve group list`", id)
	}
	d := describedGroup{Group: id, State: g.State, Type: "classic", ProtocolType: g.ProtocolType, Protocol: g.Protocol, Coordinator: g.Coordinator.NodeID, Members: []describedMember{}, Partitions: []groupPartition{}}
	for _, m := range g.Members {
		d.Members = append(d.Members, describeMember(m, owners))
	}
	return d, nil
}

func describeMember(m kadm.DescribedGroupMember, owners map[string]map[int32]string) describedMember {
	d := describedMember{Member: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Assigned: map[string][]int32{}}
	if m.InstanceID != nil {
		d.Instance = *m.InstanceID
	}
	a, ok := m.Assigned.AsConsumer()
	if !ok {
		return d
	}
	for _, t := range a.Topics {
		d.Assigned[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
		for _, p := range t.Partitions {
			own(owners, t.Topic, p, m.MemberID)
		}
	}
	return d
}

// fill adds the partitions. One whose end nobody tells has no lag.
func (d *describedGroup) fill(ctx context.Context, adm *admin, committed groupCommitted, owners map[string]map[int32]string) error {
	topics := map[string]map[int32]bool{}
	note := func(topic string, p int32) {
		if topics[topic] == nil {
			topics[topic] = map[int32]bool{}
		}
		topics[topic][p] = true
	}
	for topic, ps := range committed {
		for p := range ps {
			note(topic, p)
		}
	}
	for topic, ps := range owners {
		for p := range ps {
			note(topic, p)
		}
	}
	for _, topic := range sortedKeys(topics) {
		partitions := sortedPartitions(topics[topic])
		ends, err := logEnds(ctx, adm, topic, partitions)
		if err != nil && ctx.Err() != nil {
			return err
		}
		for _, p := range partitions {
			gp := groupPartition{Topic: topic, Partition: p, Member: owners[topic][p]}
			if o, ok := committed[topic][p]; ok {
				gp.Committed, gp.Metadata = &o.At, o.Metadata
			}
			if end, ok := ends[p]; ok {
				gp.End = &end.offset
			}
			if gp.Committed != nil && gp.End != nil {
				lag := max(*gp.End-*gp.Committed, 0)
				gp.Lag = &lag
				d.Lag += lag
			}
			d.Partitions = append(d.Partitions, gp)
		}
	}
	return nil
}

func writeGroups(w io.Writer, groups []describedGroup) error {
	for i, d := range groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s  state %s  type %s  protocol %s/%s%s  coordinator %d  members %d  lag %d\n",
			d.Group, d.State, d.Type, cell(d.ProtocolType), cell(d.Protocol), d.epochs(), d.Coordinator, len(d.Members), d.Lag)
		hosts := map[string]describedMember{}
		for _, m := range d.Members {
			hosts[m.Member] = m
			if len(m.Assigned) == 0 {
				fmt.Fprintf(w, "member %s (%s, %s) has no partitions\n", m.Member, cell(m.ClientID), m.Host)
			}
		}
		if len(d.Partitions) == 0 {
			continue
		}
		t := &table{header: []string{"topic", "partition", "committed", "end", "lag", "member", "host"}}
		for _, p := range d.Partitions {
			t.add(p.Topic, p.Partition, p.Committed, p.End, p.Lag, p.Member, hosts[p.Member].Host)
		}
		if err := t.write(w); err != nil {
			return err
		}
	}
	return nil
}
