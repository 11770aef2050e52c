// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/record"
)

// metadata answers which topics there are, who leads their partitions and where the nodes are. It speaks from this node's image.
func (s *Server) metadata(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	img := s.metadataImage(ctx, req, r.Version)
	for _, b := range img.Brokers() {
		if e, ok := endpointOf(img, b.Node, r.Listener); ok {
			n := kmsg.NewMetadataResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = int32(e.node), e.host, e.port, rackOf(e.rack)
			resp.Brokers = append(resp.Brokers, n)
		}
	}
	if s.meta.ClusterID() != "" {
		resp.ClusterID = kmsg.StringPtr(s.meta.ClusterID())
	}
	resp.ControllerID = int32(controllerOf(img, r.Listener))
	resp.AuthorizedOperations = operationsNotAsked
	if req.IncludeClusterAuthorizedOperations && r.Version <= operationsAskedUntil {
		resp.AuthorizedOperations = clusterOperations
	}
	v := metadataView{img: img, listener: r.Listener, version: r.Version, operations: operationsNotAsked}
	if req.IncludeTopicAuthorizedOperations {
		v.operations = topicOperations
	}
	if asksForAll(req, r.Version) {
		resp.Topics = v.all()
		return resp, nil
	}
	missing := v.named(resp, req.Topics)
	if len(missing) > 0 && (req.AllowAutoTopicCreation || r.Version < 4) && s.broker.Config().AutoCreateTopics {
		s.autoCreate(ctx, r, missing)
	}
	return resp, nil
}

// metadataImage is the image to answer from. A topic that was just created is here before its leaders are, and in Kafka with them: clients
// that ask in between and keep what they hear (kafka-go does, for six seconds) could not write to it. So its first leaders are waited for, a
// little while.
func (s *Server) metadataImage(ctx context.Context, req *kmsg.MetadataRequest, version int16) *metadata.Image {
	img := s.meta.Image()
	spans := make(map[record.TopicID]partitionSpan)
	see := func(t *metadata.Topic) {
		if t == nil || t.Deleting {
			return
		}
		if span := neverLed(img, t); span.End > 0 {
			spans[t.ID] = span
		}
	}
	if asksForAll(req, version) {
		for t := range img.Topics() {
			see(t)
		}
	}
	for i := range req.Topics {
		if name := req.Topics[i].Topic; name != nil {
			see(img.Topic(*name))
		} else {
			see(img.TopicByID(req.Topics[i].TopicID))
		}
	}
	if len(spans) == 0 {
		return img
	}
	ctx, cancel := context.WithTimeout(ctx, firstLeaderWait)
	defer cancel()
	_ = s.awaitLeaders(ctx, spans) // in vain or not, the answer says what there is
	return s.meta.Image()
}

func asksForAll(req *kmsg.MetadataRequest, version int16) bool {
	return req.Topics == nil || (version == 0 && len(req.Topics) == 0)
}

// neverLed is where the topic's partitions lie that have had no leader yet, though a node is there that could be one.
func neverLed(img *metadata.Image, t *metadata.Topic) (span partitionSpan) {
	for i, replicas := range t.Partitions {
		state, _ := img.Partition(record.PartitionID{Topic: t.ID, Index: int32(i)})
		if state.Leader.Rev != 0 || !slices.ContainsFunc(replicas, func(n record.NodeID) bool { return img.Broker(n) != nil }) {
			continue
		}
		if span.End == 0 {
			span.First = int32(i)
		}
		span.End = int32(i) + 1
	}
	return span
}

// rackOf is null where a node says nothing about its rack.
func rackOf(rack string) *string {
	if rack == "" {
		return nil
	}
	return &rack
}

// metadataView is what the topics of one answer are made from.
type metadataView struct {
	img        *metadata.Image
	listener   string
	version    int16
	operations int32
}

func (v *metadataView) all() []kmsg.MetadataResponseTopic {
	topics := []kmsg.MetadataResponseTopic{}
	for t := range v.img.Topics() {
		if !t.Deleting {
			topics = append(topics, v.topic(t))
		}
	}
	slices.SortFunc(topics, func(a, b kmsg.MetadataResponseTopic) int { return cmp.Compare(*a.Topic, *b.Topic) })
	return topics
}

// named answers the topics asked for, each once, and gives the valid names that do not exist.
func (v *metadataView) named(resp *kmsg.MetadataResponse, asked []kmsg.MetadataRequestTopic) (missing []string) {
	seenName, seenID := make(map[string]bool), make(map[record.TopicID]bool)
	resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(asked))
	for i := range asked {
		id, name := record.TopicID(asked[i].TopicID), asked[i].Topic
		switch {
		case id != record.TopicID{} && v.version >= 12:
			if !seenID[id] {
				seenID[id] = true
				resp.Topics = append(resp.Topics, v.byID(id))
			}
		case name == nil || id != record.TopicID{}:
			resp.Topics = append(resp.Topics, v.failed(kmsg.StringPtr(""), id, codeInvalidRequest))
		case !seenName[*name]:
			seenName[*name] = true
			t := v.byName(*name)
			if Code(t.ErrorCode) == codeUnknownTopicOrPartition {
				missing = append(missing, *name)
			}
			resp.Topics = append(resp.Topics, t)
		}
	}
	return missing
}

func (v *metadataView) byName(name string) kmsg.MetadataResponseTopic {
	if t := v.img.Topic(name); t != nil && !t.Deleting {
		return v.topic(t)
	}
	code := codeUnknownTopicOrPartition
	if checkTopicName(name) != nil {
		code = codeInvalidTopic
	}
	return v.failed(&name, record.TopicID{}, code)
}

func (v *metadataView) byID(id record.TopicID) kmsg.MetadataResponseTopic {
	if t := v.img.TopicByID(id); t != nil && !t.Deleting {
		return v.topic(t)
	}
	return v.failed(nil, id, codeUnknownTopicID)
}

func (v *metadataView) failed(name *string, id record.TopicID, code Code) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID, t.ErrorCode = name, id, code.int16()
	t.IsInternal = name != nil && internalTopics[*name]
	t.Partitions = []kmsg.MetadataResponseTopicPartition{}
	t.AuthorizedOperations = operationsNotAsked
	return t
}

func (v *metadataView) topic(t *metadata.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = kmsg.StringPtr(t.Name), t.ID, internalTopics[t.Name]
	out.AuthorizedOperations = v.operations
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range out.Partitions {
		p := &out.Partitions[i]
		p.Default()
		d := describePartition(v.img, t, int32(i), v.listener)
		if v.version < 6 && d.code == codeListenerNotFound {
			d.code = codeLeaderNotAvailable
		}
		p.Partition, p.ErrorCode = int32(i), d.code.int16()
		p.Leader, p.LeaderEpoch = int32(d.leader), int32(d.epoch)
		p.Replicas, p.ISR, p.OfflineReplicas = d.replicas, d.isr, d.offline
	}
	return out
}

// partitionView is a partition as the clients of one listener see it.
type partitionView struct {
	code                   Code
	leader                 record.NodeID
	epoch                  record.Epoch
	replicas, isr, offline []int32
	elr                    []int32
}

func describePartition(img *metadata.Image, t *metadata.Topic, index int32, listener string) partitionView {
	state, _ := img.Partition(record.PartitionID{Topic: t.ID, Index: index})
	v := partitionView{
		leader: record.NoNode, epoch: state.Leader.Epoch, replicas: nodeIDs(t.Partitions[index]),
		isr: make([]int32, len(state.ISR.Members)), offline: []int32{}, elr: make([]int32, len(state.ISR.ELR)),
	}
	for i, m := range state.ISR.Members {
		v.isr[i] = int32(m.Node)
	}
	for i, m := range state.ISR.ELR {
		v.elr[i] = int32(m.Node)
	}
	for _, n := range t.Partitions[index] {
		if img.Broker(n) == nil {
			v.offline = append(v.offline, int32(n))
		}
	}
	switch b := leaderOf(img, &state); {
	case b == nil:
		v.code = codeLeaderNotAvailable
	default:
		if _, ok := b.Endpoint(listener); !ok {
			v.code = codeListenerNotFound // a leader must be in the answer's list of nodes
			break
		}
		v.leader = b.Node
	}
	return v
}

// autoCreate creates topics that clients asked for. The answer says that they do not exist, as Kafka's does: clients ask again. What a
// client's quota does not let be made now is left for then, without a delay for the client, which asks for more than this.
func (s *Server) autoCreate(ctx context.Context, r *Request, names []string) {
	ctx, cancel := context.WithTimeout(ctx, autoCreateWait)
	defer cancel()
	img := s.meta.Image()
	taken := collisions(img)
	var placed *controller.Counts
	for i, name := range names {
		if i == maxAutoCreated {
			return
		}
		if other, ok := taken[collisionKey(name)]; internalTopics[name] || (ok && other != name) {
			continue
		}
		n := kmsg.NewCreateTopicsRequestTopic()
		n.Topic, n.NumPartitions, n.ReplicationFactor = name, -1, -1
		plan, err := s.planTopic(img, &n, &placed)
		if charged := *r; err == nil && s.quotas.mutate(&charged, true, len(plan.spec.Partitions)) != nil {
			return
		}
		if err == nil {
			_, err = s.meta.CreateTopic(ctx, plan.spec)
		}
		if canCollide(name) {
			taken[collisionKey(name)] = name
		}
		if err != nil && !errors.Is(err, metadata.ErrTopicExists) {
			s.log.Warn("topic was not created automatically", "topic", name, "error", err)
			return
		}
	}
}
