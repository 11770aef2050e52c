// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/record"
)

// What a client may do with a topic or the cluster, as Kafka's bit fields say it (bit = ACL operation). Nobody is refused
// anything as long as there is no authorizer.
const (
	operationsNotAsked   int32 = math.MinInt32
	topicOperations      int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations    int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	maxTopicNameLength         = 249
	operationsAskedUntil       = 10 // Metadata has cluster operations in versions 8 to 10
)

// refusal is an error of administration that no package below has a sentinel for: the code and what to tell the user.
type refusal struct {
	code    Code
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(code Code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// adminCode is the code and message of an error for a client; what is our fault goes to the log as well.
func (s *Server) adminCode(doing string, err error) (Code, *string) {
	if err == nil {
		return codeNone, nil
	}
	text := err.Error()
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.code, &text
	}
	code := codeOf(err)
	if code == codeUnknownServerError {
		s.log.Error("request failed", "doing", doing, "error", err)
	}
	return code, &text
}

// checkTopicName refuses names that Kafka refuses.
func checkTopicName(name string) error {
	switch {
	case name == "":
		return refuse(codeInvalidTopic, "topic name is empty")
	case name == "." || name == "..":
		return refuse(codeInvalidTopic, "topic name %q: must not be . or ..", name)
	case len(name) > maxTopicNameLength:
		return refuse(codeInvalidTopic, "topic name of %d characters: at most %d are allowed", len(name), maxTopicNameLength)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return refuse(codeInvalidTopic, "topic name %q: only letters, digits and . _ - are allowed", name)
		}
	}
	return nil
}

// collisionKey is equal for names that differ in dots and underscores only: Kafka's metric names cannot tell those apart.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

func canCollide(name string) bool { return strings.ContainsAny(name, "._") }

// collisions maps the keys of existing names that could collide. It costs a walk over all topics, so it is made only when a new
// name could.
func collisions(img *metadata.Image) map[string]string {
	names := make(map[string]string)
	for t := range img.Topics() {
		if !t.Deleting && canCollide(t.Name) {
			names[collisionKey(t.Name)] = t.Name
		}
	}
	return names
}

// findTopic finds a topic for a change. That a name does not exist is decided by a linearizable read: the topic may have been
// made on another node a moment ago.
func (s *Server) findTopic(ctx context.Context, name string) (*metadata.Topic, error) {
	if t := s.meta.Image().Topic(name); t != nil && !t.Deleting {
		return t, nil
	}
	if checkTopicName(name) != nil {
		return nil, fmt.Errorf("topic %q: %w", name, metadata.ErrUnknownTopic)
	}
	return s.meta.ReadTopicByName(ctx, name)
}

// findTopicByID is findTopic by id; a topic that is not there is UNKNOWN_TOPIC_ID.
func (s *Server) findTopicByID(ctx context.Context, id record.TopicID) (*metadata.Topic, error) {
	if t := s.meta.Image().TopicByID(id); t != nil && !t.Deleting {
		return t, nil
	}
	t, err := s.meta.ReadTopic(ctx, id)
	if errors.Is(err, metadata.ErrUnknownTopic) {
		return nil, refuse(codeUnknownTopicID, "no topic has the id %s", id)
	}
	return t, err
}

// placementNodes are the nodes that may get replicas.
func placementNodes(img *metadata.Image) []controller.Node {
	return controller.Placeable(controller.Nodes(img))
}

// mayHold refuses a node for a new replica: it must be registered, hold replicas at all, and not drain.
func mayHold(img *metadata.Image, n record.NodeID) error {
	switch at := slices.IndexFunc(controller.Nodes(img), func(c controller.Node) bool { return c.ID == n }); {
	case at < 0:
		return refuse(codeInvalidReplicaAssignment, "broker %d is not registered", n)
	case img.Draining(n):
		return refuse(codeInvalidReplicaAssignment, "broker %d drains: it gets no new replicas until `varve node undrain %[1]d`", n)
	}
	return nil
}

// checkReplicas checks replicas that a client chose for one partition.
func checkReplicas(img *metadata.Image, replicas []int32) ([]record.NodeID, error) {
	if len(replicas) == 0 {
		return nil, refuse(codeInvalidReplicaAssignment, "a partition needs at least one replica")
	}
	nodes := make([]record.NodeID, 0, len(replicas))
	for _, r := range replicas {
		n := record.NodeID(r)
		if slices.Contains(nodes, n) {
			return nil, refuse(codeInvalidReplicaAssignment, "replicas %v name broker %d twice", replicas, r)
		}
		if err := mayHold(img, n); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// adminDeadline is how long a change may take: what the client said, at most a bound of ours.
func adminDeadline(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	d := time.Duration(max(millis, 0)) * time.Millisecond
	return context.WithTimeout(ctx, min(max(d, minAdminWait), maxAdminWait))
}

// settle waits until this node's image shows a change, so that a client that asks the same node next sees it, and is charged by it. The change is
// made already: when the image does not come in time, the answer is still yes.
func (s *Server) settle(ctx context.Context, rev metadata.Revision) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	if err := s.meta.WaitFor(ctx, rev); err != nil && ctx.Err() == nil {
		s.log.Warn("metadata image is late", "revision", rev, "error", err)
	}
	s.quotas.follow(s.meta.Image()) // who is told of images may not have been told yet
}

// partitionSpan is the partitions [First, End) of a topic.
type partitionSpan struct{ First, End int32 }

// awaitLeaders waits until all those partitions have a leader that is registered.
func (s *Server) awaitLeaders(ctx context.Context, spans map[record.TopicID]partitionSpan) error {
	err := s.awaitImage(ctx, func(img *metadata.Image) bool {
		for id, span := range spans {
			if !hasLeaders(img, id, span) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return refuse(codeRequestTimedOut, "created, but not every partition has a leader yet: %v", err)
	}
	return nil
}

// awaitImage waits for an image of which something holds. It gives the cause of the context's end when that comes first.
func (s *Server) awaitImage(ctx context.Context, holds func(*metadata.Image) bool) error {
	changed := make(chan struct{}, 1)
	defer s.meta.Subscribe(func(_, _ *metadata.Image) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for !holds(s.meta.Image()) {
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func hasLeaders(img *metadata.Image, id record.TopicID, span partitionSpan) bool {
	t := img.TopicByID(id)
	if t == nil {
		return false
	}
	if t.Deleting {
		return true // somebody deleted it again: nothing to wait for
	}
	for p := span.First; p < span.End; p++ {
		state, ok := img.Partition(record.PartitionID{Topic: id, Index: p})
		if !ok || leaderOf(img, &state) == nil {
			return false
		}
	}
	return true
}

// leaderOf is the registered node that leads, nil while there is none. A node that came back after a restart does not lead until
// it has taken over again.
func leaderOf(img *metadata.Image, state *metadata.PartitionState) *metadata.Broker {
	b := img.Broker(state.Leader.Node)
	if b == nil || b.Incarnation != state.Leader.Incarnation {
		return nil
	}
	return b
}

// controllerOf is the node that clients are sent to for administration. Every node serves it; the answer must be one that lives.
func controllerOf(img *metadata.Image, listener string) record.NodeID {
	for _, b := range img.Brokers() {
		if _, ok := b.Endpoint(listener); ok {
			return b.Node
		}
	}
	return record.NoNode
}

// takers says how many brokers take new replicas, and which drain.
func takers(img *metadata.Image) string {
	var drains []string
	free := 0
	for _, n := range controller.Nodes(img) {
		if n.Draining {
			drains = append(drains, strconv.Itoa(int(n.ID)))
		} else {
			free++
		}
	}
	takes, registered := fmt.Sprintf("%d brokers take", free), fmt.Sprintf("only %d brokers are registered", free)
	if free == 1 {
		takes, registered = "1 broker takes", "only 1 broker is registered"
	}
	switch len(drains) {
	case 0:
		return registered
	case 1:
		return fmt.Sprintf("%s new replicas (node %s drains)", takes, drains[0])
	}
	return fmt.Sprintf("%s new replicas (nodes %s drain)", takes, strings.Join(drains, ", "))
}

// duplicates are the names that occur more than once.
func duplicates[T any, K cmp.Ordered](items []T, key func(*T) K) map[K]bool {
	seen, twice := make(map[K]bool, len(items)), make(map[K]bool)
	for i := range items {
		k := key(&items[i])
		if seen[k] {
			twice[k] = true
		}
		seen[k] = true
	}
	return twice
}

// inForce shows default.replication.factor=auto as the number it stands for now: clients parse it.
func (s *Server) inForce(img *metadata.Image) config.InForce {
	return func(name, value string) string {
		if name == "default.replication.factor" && value == "auto" {
			return fmt.Sprint(s.broker.Config().ReplicationFactor(len(placementNodes(img))))
		}
		return value
	}
}

func nodeIDs(nodes []record.NodeID) []int32 {
	out := make([]int32, len(nodes))
	for i, n := range nodes {
		out[i] = int32(n)
	}
	return out
}

// nodeEntity is a node's name among the dynamic configs.
func nodeEntity(n record.NodeID) string { return strconv.Itoa(int(n)) }
