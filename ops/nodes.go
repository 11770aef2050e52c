// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"net/http"
	"strconv"
)

// NodeState is a node as /v1/nodes shows it: registered, or gone and draining still.
type NodeState struct {
	ID          int32  `json:"id"`
	Registered  bool   `json:"registered"`
	Rack        string `json:"rack,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`
	Release     string `json:"release,omitempty"`
	HTTP        string `json:"http,omitempty"`
	Leaders     int    `json:"leaders"`  // partitions that it leads
	Replicas    int    `json:"replicas"` // that are assigned to it
	Arriving    int    `json:"arriving"` // of them those that a move brings
	Leaving     int    `json:"leaving"`  // replicas that a move takes away, or took away and that are in sync or eligible still
	Draining    bool   `json:"draining"`
	Since       int64  `json:"drainingSince,omitempty"` // ms since 1970
	// Staying are the replicas of a node that drains which nothing moves: no other node can take them, and no automatic replication factor
	// falls. StayingIn are topics of them, the first hundred by name.
	Staying   int      `json:"staying"`
	StayingIn []string `json:"stayingIn,omitempty"`
}

// Nodes is the answer of /v1/nodes.
type Nodes struct {
	Nodes []NodeState `json:"nodes"` // by id
	// Takers are the nodes that take replicas and leaders: those that are registered and do not drain. Null: not told.
	Takers []int32 `json:"takers"`
	// Unsure is what makes the answer doubtful: the node that gives it has no registration, or is not sure of its lease. Empty: nothing.
	Unsure string `json:"unsure,omitempty"`
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	n, err := s.node.Nodes(r.Context())
	answer(w, n, err)
}

// drain marks a node, or takes the mark away.
func (s *Server) drain(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseInt(r.PathValue("node"), 10, 32)
		if err != nil || id < 0 {
			writeError(w, http.StatusBadRequest, fmt.Sprintf("node %q is not a node id", r.PathValue("node")))
			return
		}
		n, err := s.node.DrainNode(r.Context(), int32(id), on)
		answer(w, n, err)
	}
}
