// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/varve/varve/ops"
)

// nobodyTakes tells that nothing can leave any node, and what to do; "" when a node is left, or nobody knows.
func nobodyTakes(n *ops.Nodes) string {
	if n.Takers == nil || len(n.Takers) > 0 {
		return ""
	}
	var drains []int32
	for _, s := range n.Nodes {
		if s.Draining && s.Registered {
			drains = append(drains, s.ID)
		}
	}
	return fmt.Sprintf("no node is left that takes replicas or leaders (draining: %s); `varve node undrain NODE` brings one back, or start another one", cell(drains))
}

// drainNote is a line about what does not leave the node by itself, "" when all does.
func drainNote(n *ops.Nodes, id int32) string {
	node := nodeOf(n.Nodes, id)
	if !node.Draining || node.Leaders+node.Replicas == 0 {
		return ""
	}
	if nobody := nobodyTakes(n); nobody != "" {
		return fmt.Sprintf("node %d keeps what it leads (%d) and holds (%d): %s", id, node.Leaders, node.Replicas, nobody)
	}
	if node.Staying == 0 {
		return ""
	}
	they, them := "stay", "them"
	if node.Staying == 1 {
		they, them = "stays", "it"
	}
	return fmt.Sprintf("%s %s on node %d (%s): the replication factor is explicit, and no other node can take %s; nothing has to be done if the node comes back, else %s",
		counted(node.Staying, "replica"), they, id, namedTopics(node.StayingIn), them, insteadOf(n, &node))
}

// insteadOf says how what stays can leave. A factor of 1 is not proposed.
func insteadOf(n *ops.Nodes, node *ops.NodeState) string {
	if len(n.Takers) < 2 {
		return "start another one, or end the drain of one"
	}
	topic := "TOPIC"
	if len(node.StayingIn) == 1 {
		topic = node.StayingIn[0]
	}
	return fmt.Sprintf("start another one, or lower the factor: `varve reassign plan %s --nodes %s --replication-factor %d -o json | varve reassign apply --file -`",
		topic, cell(n.Takers), len(n.Takers))
}

// namedTopics names the first of some topics.
func namedTopics(names []string) string {
	switch {
	case len(names) == 1:
		return "topic " + names[0]
	case len(names) > maxTopicsNamed:
		names = append(names[:maxTopicsNamed:maxTopicsNamed], "…")
	}
	return "topics " + strings.Join(names, ", ")
}

// undrainNote says what comes back, and what does not by itself.
func undrainNote(n *ops.Nodes, id int32) string {
	when := "it leads within seconds"
	if !nodeOf(n.Nodes, id).Registered {
		when = "once it runs, it leads within seconds"
	}
	return fmt.Sprintf("node %d may lead and hold again: %s where its replica is in sync and the first one (`varve topic describe`); other leaders come as balance "+
		"needs them, without load only where their numbers are uneven: see `varve node undrain --help`", id, when)
}
