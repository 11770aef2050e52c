// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"
)

// AutoReplicationFactor is Broker.DefaultReplicationFactor for default.replication.factor=auto.
const AutoReplicationFactor int16 = -1

// Broker is one broker's configs in force: its dynamic values over the cluster's dynamic defaults over what it was started with
// over the defaults. The typed fields are what the code reads often; Get has every config (C4).
type Broker struct {
	static, dynamicDefault, dynamicNode map[string]string

	NodeID                   int32
	Rack                     string
	AutoCreateTopics         bool
	DeleteTopics             bool
	NumPartitions            int32
	DefaultReplicationFactor int16 // AutoReplicationFactor: min(3, live nodes)
	MinInSyncReplicas        int
	ReplicaLagTimeMax        time.Duration
	AutoLeaderRebalance      bool

	SocketRequestMaxBytes     int
	ConnectionsMaxIdle        time.Duration // negative: for ever
	MaxConnections            int
	MaxConnectionsPerIP       int
	QueuedMaxRequests         int
	FetchMaxBytes             int
	FetchSessionSlots         int
	MaxPartitionsPerDescribe  int // max.request.partition.size.limit
	RequestTimeout            time.Duration
	OffsetMetadataMaxBytes    int
	ProducerIDExpiration      time.Duration
	TransactionMaxTimeout     time.Duration
	TransactionalIDExpiration time.Duration
	RetentionCheckInterval    time.Duration
	OffsetsTopicNumPartitions int32
	OffsetsRetention          time.Duration
	OffsetsRetentionCheck     time.Duration
	GroupInitialDelay         time.Duration
	GroupMinSessionTimeout    time.Duration
	GroupMaxSessionTimeout    time.Duration
	GroupMaxSize              int

	Varve Varve
}

// Varve holds the varve.* configs. A zero byte count means: to be chosen from the disk or the memory there is.
type Varve struct {
	SegmentMaxAge         time.Duration
	SegmentMaxBytes       int64
	HotBytes              int64
	ManifestEtcdEntries   int
	UploadParallelism     int
	UploadDeadline        time.Duration
	CacheBytes            int64
	GCGrace               time.Duration
	GCInterval            time.Duration
	BrokerLease           time.Duration
	ReadyTimeout          time.Duration // 0: none
	RequestMemoryBytes    int64
	ConnectionMemoryBytes int64
	FetchColdMemoryBytes  int64
}

// ResolveBroker computes a broker's configs in force from what it was started with (flags, file, environment), the cluster-wide
// dynamic values and its own dynamic values. Errors name the key, the value and what is allowed.
func ResolveBroker(static, dynamicDefault, dynamicNode map[string]string) (*Broker, error) {
	b := &Broker{static: clone(static), dynamicDefault: clone(dynamicDefault), dynamicNode: clone(dynamicNode)}
	for _, layer := range []map[string]string{b.static, b.dynamicDefault, b.dynamicNode} {
		for _, name := range sortedKeys(layer) {
			d, err := find(BrokerScope, name)
			if err != nil {
				return nil, err
			}
			if err := d.Validate(layer[name]); err != nil {
				return nil, err
			}
		}
	}
	b.fill()
	if err := b.crossCheck(); err != nil {
		return nil, err
	}
	return b, nil
}

// ResolveStoredBroker is ResolveBroker for dynamic values that were accepted once: entries that this binary cannot use are left
// out and returned as errors beside a usable Broker. The static values must be good.
func ResolveStoredBroker(static, dynamicDefault, dynamicNode map[string]string) (*Broker, []error, error) {
	var errs []error
	usable := func(layer map[string]string) map[string]string {
		out := make(map[string]string, len(layer))
		for _, name := range sortedKeys(layer) {
			d, err := find(BrokerScope, name)
			if err == nil {
				err = d.Validate(layer[name])
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out[name] = layer[name]
		}
		return out
	}
	b, err := ResolveBroker(static, usable(dynamicDefault), usable(dynamicNode))
	if err == nil {
		return b, errs, nil
	}
	errs = append(errs, err)
	b, err = ResolveBroker(static, nil, nil)
	return b, errs, err
}

// Default is a broker that was told nothing.
func Default() *Broker {
	b, err := ResolveBroker(nil, nil, nil)
	if err != nil {
		panic("config: the defaults contradict each other: " + err.Error())
	}
	return b
}

func clone(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// set is the value that somebody set, whoever comes first.
func (b *Broker) set(name string) (string, bool) {
	for _, layer := range [...]map[string]string{b.dynamicNode, b.dynamicDefault, b.static} {
		if v, ok := layer[name]; ok {
			return v, true
		}
	}
	return "", false
}

// Get is the value in force of any broker config; empty when it has none. An unknown name panics: it is in no table.
func (b *Broker) Get(name string) string {
	d := mustFind(BrokerScope, name)
	if v, ok := b.set(name); ok {
		return v
	}
	return d.Default
}

// Int is Get of a numeric config.
func (b *Broker) Int(name string) int64 { return reader(b.Get).long(name) }

// Bool is Get of a boolean config.
func (b *Broker) Bool(name string) bool { return reader(b.Get).boolean(name) }

// List is Get of a list config, cut into its elements.
func (b *Broker) List(name string) []string { return splitList(b.Get(name)) }

// Millis is Get of a config in milliseconds.
func (b *Broker) Millis(name string) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(b.Int(name), most)) * time.Millisecond
}

// Static is what the broker was started with. Do not change the map.
func (b *Broker) Static() map[string]string { return b.static }

// With is the same broker after its dynamic values changed.
func (b *Broker) With(dynamicDefault, dynamicNode map[string]string) (*Broker, error) {
	return ResolveBroker(b.static, dynamicDefault, dynamicNode)
}

// ReplicationFactor is the replication factor of a new topic that says none, with so many nodes alive.
func (b *Broker) ReplicationFactor(liveNodes int) int16 {
	if b.DefaultReplicationFactor != AutoReplicationFactor {
		return b.DefaultReplicationFactor
	}
	return int16(max(1, min(3, liveNodes)))
}

func (b *Broker) fill() {
	r := reader(b.Get)
	b.NodeID = -1
	if b.Get("node.id") != "" {
		b.NodeID = int32(r.long("node.id"))
	}
	b.Rack = b.Get("broker.rack")
	b.AutoCreateTopics = r.boolean("auto.create.topics.enable")
	b.DeleteTopics = r.boolean("delete.topic.enable")
	b.NumPartitions = int32(r.long("num.partitions"))
	b.DefaultReplicationFactor = AutoReplicationFactor
	if b.Get("default.replication.factor") != "auto" {
		b.DefaultReplicationFactor = int16(r.long("default.replication.factor"))
	}
	b.MinInSyncReplicas = r.integer("min.insync.replicas")
	b.ReplicaLagTimeMax = b.Millis("replica.lag.time.max.ms")
	b.AutoLeaderRebalance = r.boolean("auto.leader.rebalance.enable")
	b.SocketRequestMaxBytes = r.integer("socket.request.max.bytes")
	b.ConnectionsMaxIdle = b.Millis("connections.max.idle.ms")
	b.MaxConnections = r.integer("max.connections")
	b.MaxConnectionsPerIP = r.integer("max.connections.per.ip")
	b.QueuedMaxRequests = r.integer("queued.max.requests")
	b.FetchMaxBytes = r.integer("fetch.max.bytes")
	b.FetchSessionSlots = r.integer("max.incremental.fetch.session.cache.slots")
	b.MaxPartitionsPerDescribe = r.integer("max.request.partition.size.limit")
	b.RequestTimeout = b.Millis("request.timeout.ms")
	b.OffsetMetadataMaxBytes = r.integer("offset.metadata.max.bytes")
	b.ProducerIDExpiration = b.Millis("producer.id.expiration.ms")
	b.TransactionMaxTimeout = b.Millis("transaction.max.timeout.ms")
	b.TransactionalIDExpiration = b.Millis("transactional.id.expiration.ms")
	b.RetentionCheckInterval = b.Millis("log.retention.check.interval.ms")
	b.OffsetsTopicNumPartitions = int32(r.long("offsets.topic.num.partitions"))
	b.OffsetsRetention = time.Duration(r.long("offsets.retention.minutes")) * time.Minute
	b.OffsetsRetentionCheck = b.Millis("offsets.retention.check.interval.ms")
	b.GroupInitialDelay = b.Millis("group.initial.rebalance.delay.ms")
	b.GroupMinSessionTimeout = b.Millis("group.min.session.timeout.ms")
	b.GroupMaxSessionTimeout = b.Millis("group.max.session.timeout.ms")
	b.GroupMaxSize = r.integer("group.max.size")
	b.Varve = Varve{
		SegmentMaxAge:         b.Millis("varve.segment.max.ms"),
		SegmentMaxBytes:       r.long("varve.segment.max.bytes"),
		HotBytes:              r.long("varve.hot.bytes"),
		ManifestEtcdEntries:   r.integer("varve.manifest.etcd.entries"),
		UploadParallelism:     r.integer("varve.upload.parallelism"),
		UploadDeadline:        b.Millis("varve.upload.deadline.ms"),
		CacheBytes:            r.long("varve.cache.bytes"),
		GCGrace:               b.Millis("varve.gc.grace.ms"),
		GCInterval:            b.Millis("varve.gc.interval.ms"),
		BrokerLease:           b.Millis("varve.broker.lease.ms"),
		ReadyTimeout:          b.Millis("varve.ready.timeout.ms"),
		RequestMemoryBytes:    r.long("varve.request.memory.bytes"),
		ConnectionMemoryBytes: r.long("varve.connection.memory.bytes"),
		FetchColdMemoryBytes:  r.long("varve.fetch.cold.memory.bytes"),
	}
}

// crossCheck refuses values that contradict each other: the topic defaults that they add up to must be possible, and every
// minimum below its maximum.
func (b *Broker) crossCheck() error {
	if err := crossCheckTopic(nil, b); err != nil {
		return fmt.Errorf("topic defaults of the broker: %w", err)
	}
	for _, p := range ordered {
		if low, high := b.Int(p.low), b.Int(p.high); low > high {
			return fmt.Errorf("%w: %s=%d: must be at most %s=%d", ErrInvalid, p.low, low, p.high, high)
		}
	}
	return nil
}

var ordered = []struct{ low, high string }{
	{"group.min.session.timeout.ms", "group.max.session.timeout.ms"},
	{"group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"},
	{"group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"group.streams.assignment.interval.ms", "group.streams.max.assignment.interval.ms"},
}
