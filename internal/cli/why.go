// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/varve/varve/ops"
)

func newWhyCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why TOPIC[:PARTITION]",
		Short: "Say in words why a partition is as it is: what the high watermark waits for, why it is not sealed, not evicted, has no leader",
		Long: "Asks one node, and for partitions that another node leads that one as well, at the HTTP address it registered; what cannot be\n" +
			"reached is said.",
		Args: exactArgs("TOPIC[:PARTITION]"),
	}
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		topic, partition, err := topicAndPartition(args[0])
		if err != nil {
			return err
		}
		query := ""
		if partition >= 0 {
			query = fmt.Sprintf("?partition=%d", partition)
		}
		var first ops.Why
		if err := api.call(cmd.Context(), http.MethodGet, "/v1/why/"+url.PathEscape(topic)+query, nil, &first); err != nil {
			return err
		}
		answers := []ops.Why{first}
		for _, leader := range otherLeaders(&first) {
			other := *api
			other.addresses, other.answering = leader.at, ""
			var w ops.Why
			if err := other.call(cmd.Context(), http.MethodGet, "/v1/why/"+url.PathEscape(topic)+query, nil, &w); err != nil {
				fmt.Fprintln(s.err, leader.silent(&first, err))
				continue
			}
			answers = append(answers, w)
		}
		merged := mergeWhy(answers)
		if *out == outputJSON {
			return writeJSON(s.out, merged)
		}
		for _, p := range merged.Partitions {
			fmt.Fprintf(s.out, "%s:%d\n", merged.Topic, p.Partition)
			for _, r := range p.Reasons {
				fmt.Fprintf(s.out, "  %s\n", r)
			}
		}
		return nil
	}
	return cmd
}

// otherLeader is a node that leads what the answering node does not.
type otherLeader struct {
	node  int32
	at    string // its HTTP address, as registered
	leads []int32
}

func otherLeaders(w *ops.Why) (out []otherLeader) {
	for _, p := range w.Partitions {
		if p.Leader < 0 || p.Leader == w.Node || p.LeaderHTTP == "" {
			continue
		}
		i := slices.IndexFunc(out, func(l otherLeader) bool { return l.node == p.Leader })
		if i < 0 {
			i, out = len(out), append(out, otherLeader{node: p.Leader, at: p.LeaderHTTP})
		}
		out[i].leads = append(out[i].leads, p.Partition)
	}
	return out
}

// silent says that the leader cannot be asked. Most often it has just died: until its lease ends it is still the leader.
func (l *otherLeader) silent(w *ops.Why, err error) string {
	what := fmt.Sprintf("%s:%d", w.Topic, l.leads[0])
	if len(l.leads) > 1 {
		what = fmt.Sprintf("%d partitions of %s", len(l.leads), w.Topic)
	}
	reason := err.Error()
	if u := (*unreachable)(nil); errors.As(err, &u) {
		reason = u.reason
	}
	return fmt.Sprintf("node %d leads %s and does not answer at %s (%s): if it died, another takes over by itself; this is what node %d knows",
		l.node, what, l.at, oneLine(reason), w.Node)
}

// mergeWhy takes each partition's reasons from its leader, where that one answered.
func mergeWhy(answers []ops.Why) ops.Why {
	merged := answers[0]
	for _, w := range answers[1:] {
		for i, p := range w.Partitions {
			if p.Leader == w.Node && i < len(merged.Partitions) && merged.Partitions[i].Partition == p.Partition {
				merged.Partitions[i] = p
			}
		}
	}
	return merged
}
