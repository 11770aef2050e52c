// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
)

// stateSource shows a node to the metrics collector.
type stateSource struct{ n *node }

func (s stateSource) Replicas() ops.ReplicaCounts {
	var c ops.ReplicaCounts
	img := s.n.meta.Image()
	for _, p := range s.n.broker.Partitions() {
		m := p.Marks()
		c.Partitions++
		c.MaxLag = max(c.MaxLag, m.Lag)
		if !m.Leading {
			if !m.Following {
				c.Offline++
			}
			continue
		}
		c.Leaders++
		if moves(img, p.ID()) {
			c.Reassigning++
		}
		switch {
		case m.InSync < m.MinISR:
			c.UnderMinISR++
		case m.InSync == m.MinISR:
			c.AtMinISR++
		}
		if m.InSync < m.Replicas {
			c.UnderReplicated++
		}
	}
	c.ProducerIDs, c.LateTxns = s.n.broker.Producers(), s.n.broker.LateTransactions()
	c.ISRShrinks, c.ISRExpands = s.n.broker.ISRChanges()
	return c
}

// moves tells whether a partition is being reassigned.
func moves(img *metadata.Image, id record.PartitionID) bool {
	t := img.TopicByID(id.Topic)
	return t != nil && int(id.Index) < len(t.Partitions) && t.Assignment(id.Index).Move != nil
}

func (s stateSource) Controller() ops.ControllerCounts {
	img := s.n.meta.Image()
	c := ops.ControllerCounts{Active: s.n.controller.Active(), UncleanElections: s.n.controller.UncleanElections(), Brokers: len(img.Brokers())}
	for t := range img.Topics() {
		if t.Deleting {
			continue
		}
		c.Topics++
		c.Partitions += len(t.Partitions)
		for i := range t.Partitions {
			state, _ := img.Partition(record.PartitionID{Topic: t.ID, Index: int32(i)})
			leader := img.Broker(state.Leader.Node)
			if leader == nil || leader.Incarnation != state.Leader.Incarnation {
				c.OfflinePartitions++
			} else if state.Leader.Node != t.Partitions[i][0] {
				c.PreferredImbalance++
			}
		}
	}
	return c
}

func (s stateSource) EachPartition(fn func(*ops.PartitionRow)) {
	img := s.n.meta.Image()
	for _, p := range s.n.broker.Partitions() {
		topic := img.TopicByID(p.ID().Topic)
		if topic == nil {
			continue
		}
		m := p.Marks()
		state, _ := img.Partition(p.ID())
		fn(&ops.PartitionRow{
			Topic: topic.Name, Partition: p.ID().Index, Leads: m.Leading, Follows: m.Following, Lag: m.Lag, Leader: int32(state.Leader.Node), UnderReplicated: m.Leading && m.InSync < m.Replicas,
			LogStart: int64(m.LogStart), LogEnd: int64(m.LogEnd), HighWatermark: int64(m.HW), HotBytes: m.HotSize, TierBytes: m.TieredSize,
			TierSegments: int(state.Head.Count), TopicPartitions: len(topic.Partitions),
		})
	}
}

// opsNode answers the operations API.
type opsNode struct{ n *node }

func (o opsNode) Ready() error { return o.n.broker.Ready() }

// clusterWithin is how long an answer about the cluster waits for the newest metadata. Without them it tells what the node knows.
const clusterWithin = time.Second

func (o opsNode) Cluster(ctx context.Context) (ops.Cluster, error) {
	// Who has just started a node, or raised the version, by way of another node or of this one, wants to see that.
	within, cancel := context.WithTimeout(ctx, clusterWithin)
	defer cancel()
	_ = o.n.meta.CatchUp(within)
	img := o.n.meta.Image()
	c := ops.Cluster{
		ClusterID: o.n.meta.ClusterID(), Name: o.n.options.cluster, Version: img.Version, Node: o.n.options.nodeID,
		Partitions: o.n.clusterPartitions(), Bucket: o.n.location.String(), Etcd: o.n.etcd, Upgradable: metadata.CurrentVersions.Max,
	}
	if holder, err := o.n.meta.Holder(within, controller.Role); err == nil && holder != record.NoNode {
		id := int32(holder)
		c.Controller = &id
	}
	for t := range img.Topics() {
		if !t.Deleting {
			c.Topics++
		}
	}
	for _, b := range img.Brokers() {
		node := ops.ClusterNode{ID: int32(b.Node), Rack: b.Rack, MinVersion: b.Versions.Min, MaxVersion: b.Versions.Max}
		for _, e := range b.Endpoints {
			node.Listeners = append(node.Listeners, e.Listener+"://"+net.JoinHostPort(e.Host, fmt.Sprint(e.Port)))
		}
		c.Upgradable = min(c.Upgradable, b.Versions.Max)
		c.Nodes = append(c.Nodes, node)
	}
	return c, nil
}

// Why answers for one partition, or for all of a topic when partition is -1.
func (o opsNode) Why(_ context.Context, name string, partition int32) (ops.Why, error) {
	img := o.n.meta.Image()
	t := img.Topic(name)
	if t == nil || t.Deleting {
		return ops.Why{}, fmt.Errorf("%w: no topic %q", ops.ErrNotFound, name)
	}
	if int(partition) >= len(t.Partitions) {
		return ops.Why{}, fmt.Errorf("%w: topic %q has %d partitions", ops.ErrNotFound, name, len(t.Partitions))
	}
	w, around := ops.Why{Topic: name, Node: o.n.options.nodeID}, controller.Around(img)
	for i := range int32(len(t.Partitions)) {
		if partition >= 0 && i != partition {
			continue
		}
		id := record.PartitionID{Topic: t.ID, Index: i}
		state, _ := img.Partition(id)
		one := ops.WhyPartition{Partition: i, Leader: int32(state.Leader.Node), Reasons: o.n.broker.Why(id)}
		one.Reasons = append(one.Reasons, whyDraining(around, t, i)...)
		if b := img.Broker(state.Leader.Node); b != nil {
			one.LeaderHTTP = b.HTTP
		}
		w.Partitions = append(w.Partitions, one)
	}
	return w, nil
}

func (o opsNode) Topic(_ context.Context, name string) (ops.Topic, error) {
	t := o.n.meta.Image().Topic(name)
	if t == nil || t.Deleting {
		return ops.Topic{}, fmt.Errorf("%w: no topic %q", ops.ErrNotFound, name)
	}
	return ops.Topic{Name: t.Name, ID: t.ID.String(), Partitions: len(t.Partitions)}, nil
}

func (o opsNode) Segments(ctx context.Context, q ops.SegmentQuery) (ops.Segments, error) {
	t := o.n.meta.Image().Topic(q.Topic)
	if t == nil || t.Deleting || q.Partition < 0 || int(q.Partition) >= len(t.Partitions) {
		return ops.Segments{}, fmt.Errorf("%w: no partition %d of topic %q", ops.ErrNotFound, q.Partition, q.Topic)
	}
	v, err := tiering.LoadView(ctx, o.n.meta, record.PartitionID{Topic: t.ID, Index: q.Partition})
	if err != nil {
		return ops.Segments{}, fmt.Errorf("%w: %w", ops.ErrUnavailable, err)
	}
	out := ops.Segments{
		Topic: t.Name, TopicID: t.ID.String(), Partition: q.Partition, LogStart: int64(v.Head.LogStart), TieredEnd: int64(v.Head.TieredEnd),
		TieredBytes: v.Head.TieredBytes, Pages: len(v.Head.Pages), Segments: []ops.Segment{},
	}
	load := func(p manifest.Page) ([]manifest.Entry, error) { return o.n.reader.Page(ctx, p) }
	err = v.Manifest.Walk(max(record.Offset(q.From), v.Manifest.LogStart), load, func(e *manifest.Entry) bool {
		if len(out.Segments) == q.Limit {
			next := int64(e.Base)
			out.Next = &next
			return false
		}
		out.Segments = append(out.Segments, segmentRow(e, o.n.location))
		return true
	})
	if err != nil {
		return ops.Segments{}, fmt.Errorf("%w: %w", ops.ErrUnavailable, err)
	}
	return out, nil
}

func segmentRow(e *manifest.Entry, bucket objstore.Location) ops.Segment {
	return ops.Segment{
		Base: int64(e.Base), End: int64(e.End), Records: e.Records, Bytes: e.DataBytes, MinTimestamp: e.MinTimestamp, MaxTimestamp: e.MaxTimestamp,
		LeaderEpoch: int32(e.LastEpoch()), HasAborted: e.HasAborted, SealedAt: e.SealedAtMillis, Object: e.Object, URL: bucket.ObjectURL(e.Object), Position: e.Pos, Length: e.Len,
		Attempt: e.Attempt.String(),
	}
}

func (o opsNode) Config() []ops.ConfigValue {
	b := o.n.broker.Config()
	var out []ops.ConfigValue
	for _, e := range config.DescribeBroker(b, nil) {
		if e.Value != nil { // not null, and no secret
			out = append(out, ops.ConfigValue{Name: e.Name, Value: *e.Value, Source: sourceNames[e.Source]})
		}
	}
	return out
}

// sourceNames are what /v1/config calls the sources, as Kafka's tools do.
var sourceNames = map[config.Source]string{
	config.SourceDynamicBroker: "DYNAMIC_BROKER_CONFIG", config.SourceDynamicDefaultBroker: "DYNAMIC_DEFAULT_BROKER_CONFIG",
	config.SourceStaticBroker: "STATIC_BROKER_CONFIG", config.SourceDefault: "DEFAULT_CONFIG",
}

func (o opsNode) Tick(ctx context.Context, job string) error {
	for _, jobs := range []*tiering.Jobs{o.n.archiver.Jobs(), o.n.jobs} {
		if slices.Contains(jobs.Names(), job) {
			return jobs.Tick(ctx, job)
		}
	}
	return fmt.Errorf("%w: no job %q; there is %v and %v", ops.ErrNotFound, job, o.n.archiver.Jobs().Names(), o.n.jobs.Names())
}

func (o opsNode) UpgradeCluster(ctx context.Context, to int) (ops.Cluster, error) {
	err := o.n.meta.UpgradeCluster(ctx, to)
	switch {
	case errors.Is(err, metadata.ErrVersionRange):
		return ops.Cluster{}, fmt.Errorf("%w: %w", ops.ErrRefused, err)
	case err != nil:
		return ops.Cluster{}, fmt.Errorf("%w: %w", ops.ErrUnavailable, err)
	}
	return o.Cluster(ctx)
}
