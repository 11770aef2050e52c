// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Source is the state of a node that Kafka's dashboards ask for. It is read at each scrape, from memory only (O2).
type Source interface {
	Replicas() ReplicaCounts
	Controller() ControllerCounts
	// EachPartition calls fn for every partition that has a replica here. The row is valid during the call only.
	EachPartition(fn func(*PartitionRow))
}

// ReplicaCounts are Kafka's ReplicaManager metrics.
type ReplicaCounts struct {
	Partitions, Leaders, UnderReplicated, UnderMinISR, AtMinISR, Offline, Reassigning, ProducerIDs int
	LateTxns                                                                                       int   // partitions with a transaction that is open for too long
	MaxLag                                                                                         int64 // of the replicas that follow, in records
	ISRShrinks, ISRExpands                                                                         uint64
}

// ControllerCounts are Kafka's KafkaController metrics, as this node knows the cluster.
type ControllerCounts struct {
	Active                                                                     bool // this node runs the controller
	Topics, Partitions, OfflinePartitions, Brokers, Fenced, PreferredImbalance int
	UncleanElections                                                           uint64
}

// PartitionRow is one local replica.
type PartitionRow struct {
	Topic               string
	Partition           int32
	Leads               bool // this node leads it
	Follows             bool
	Lag                 int64 // of a follower, in records
	Leader              int32
	UnderReplicated     bool
	LogStart, LogEnd    int64
	HighWatermark       int64
	HotBytes, TierBytes int64
	TierSegments        int
	TopicPartitions     int // of the whole topic
}

// collector turns Source into series at scrape time, so that nothing is kept per partition between scrapes.
type collector struct {
	source Source
	nodes  []nodeMetric
	parts  partitionDescs
}

type nodeMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*ReplicaCounts, *ControllerCounts) float64
}

type partitionDescs struct {
	size, logStart, logEnd, segments         *prometheus.Desc
	current, oldest, leader, underReplicated *prometheus.Desc
	partitions, lag                          *prometheus.Desc
}

// NewCollector returns the collector of one node; register it once.
func NewCollector(source Source) prometheus.Collector {
	c := &collector{source: source, nodes: nodeMetrics()}
	tp := []string{"topic", "partition"}
	desc := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	c.parts = partitionDescs{
		size:            desc("kafka_log_log_size", "Bytes of the log on this node and in the bucket.", tp),
		logStart:        desc("kafka_log_log_logstartoffset", "First offset of the log.", tp),
		logEnd:          desc("kafka_log_log_logendoffset", "Offset behind the last record on this node.", tp),
		segments:        desc("kafka_log_log_numlogsegments", "Segments in the bucket.", tp),
		current:         desc("kafka_topic_partition_current_offset", "High watermark; told by the leader.", tp),
		oldest:          desc("kafka_topic_partition_oldest_offset", "First offset of the log; told by the leader.", tp),
		leader:          desc("kafka_topic_partition_leader", "Node id of the leader; told by the leader.", tp),
		underReplicated: desc("kafka_topic_partition_under_replicated_partition", "1 when a replica is not in sync; told by the leader.", tp),
		lag:             desc("kafka_server_fetcherlagmetrics_consumerlag", "Records up to the leader's high watermark that a follower lacks; told by the follower.", tp),
		partitions:      desc("kafka_topic_partitions", "Number of partitions; told by the leader of partition 0.", []string{"topic"}),
	}
	return c
}

func nodeMetrics() []nodeMetric {
	gauge := func(name, help string, value func(*ReplicaCounts, *ControllerCounts) float64) nodeMetric {
		return nodeMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
	}
	counter := func(name, help string, value func(*ReplicaCounts, *ControllerCounts) float64) nodeMetric {
		return nodeMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
	}
	const rm, kc = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
	return []nodeMetric{
		gauge(rm+"partitioncount", "Replicas on this node.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.Partitions) }),
		gauge(rm+"leadercount", "Partitions led by this node.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.Leaders) }),
		gauge(rm+"underreplicatedpartitions", "Led partitions with a replica out of sync.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.UnderReplicated) }),
		gauge(rm+"underminisrpartitioncount", "Led partitions below their min ISR.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.UnderMinISR) }),
		gauge(rm+"atminisrpartitioncount", "Led partitions exactly at their min ISR.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.AtMinISR) }),
		gauge(rm+"offlinereplicacount", "Replicas here that cannot be served.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.Offline) }),
		gauge(rm+"reassigningpartitions", "Led partitions being moved.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.Reassigning) }),
		gauge(rm+"produceridcount", "Producer ids remembered here.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.ProducerIDs) }),
		gauge(rm+"partitionswithlatetransactionscount", "Led partitions with a transaction open for twice transaction.max.timeout.ms.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.LateTxns) }),
		counter(rm+"isrshrinks_total", "Replicas taken out of the ISR by this node.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.ISRShrinks) }),
		counter(rm+"isrexpands_total", "Replicas put into the ISR by this node.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.ISRExpands) }),
		gauge("kafka_server_replicafetchermanager_maxlag", "Most records that a follower here lacks up to its leader's high watermark.", func(r *ReplicaCounts, _ *ControllerCounts) float64 { return float64(r.MaxLag) }),
		gauge(kc+"activecontrollercount", "1 on the node that runs the controller.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return boolean(c.Active) }),
		gauge(kc+"offlinepartitionscount", "Partitions without a leader.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.OfflinePartitions) }),
		gauge(kc+"globalpartitioncount", "Partitions in the cluster.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.Partitions) }),
		gauge(kc+"globaltopiccount", "Topics in the cluster.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.Topics) }),
		gauge(kc+"activebrokercount", "Registered brokers.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.Brokers) }),
		gauge(kc+"fencedbrokercount", "Known brokers that are not registered.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.Fenced) }),
		gauge(kc+"preferredreplicaimbalancecount", "Partitions not led by their first replica.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.PreferredImbalance) }),
		counter("kafka_controller_controllerstats_uncleanleaderelections_total", "Leaders elected from outside the ISR by the controller, where unclean.leader.election.enable lets it; varve elect is not counted.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.UncleanElections) }),
		gauge("kafka_brokers", "Registered brokers.", func(_ *ReplicaCounts, c *ControllerCounts) float64 { return float64(c.Brokers) }),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.nodes {
		ch <- m.desc
	}
	p := &c.parts
	for _, d := range []*prometheus.Desc{p.size, p.logStart, p.logEnd, p.segments, p.current, p.oldest, p.leader, p.underReplicated, p.partitions, p.lag} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	replicas, controller := c.source.Replicas(), c.source.Controller()
	for _, m := range c.nodes {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&replicas, &controller))
	}
	c.source.EachPartition(func(row *PartitionRow) { c.partition(ch, row) })
}

func (c *collector) partition(ch chan<- prometheus.Metric, row *PartitionRow) {
	n := strconv.Itoa(int(row.Partition))
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.parts.size, float64(row.HotBytes+row.TierBytes), row.Topic, n)
	gauge(c.parts.logStart, float64(row.LogStart), row.Topic, n)
	gauge(c.parts.logEnd, float64(row.LogEnd), row.Topic, n)
	gauge(c.parts.segments, float64(row.TierSegments), row.Topic, n)
	if row.Follows {
		gauge(c.parts.lag, float64(row.Lag), row.Topic, n)
	}
	if !row.Leads { // one voice per partition, so that a sum over nodes is right
		return
	}
	gauge(c.parts.current, float64(row.HighWatermark), row.Topic, n)
	gauge(c.parts.oldest, float64(row.LogStart), row.Topic, n)
	gauge(c.parts.leader, float64(row.Leader), row.Topic, n)
	gauge(c.parts.underReplicated, boolean(row.UnderReplicated), row.Topic, n)
	if row.Partition == 0 {
		gauge(c.parts.partitions, float64(row.TopicPartitions), row.Topic)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
