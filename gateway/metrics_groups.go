// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
)

// groupMetrics are those of this node's coordinators under Kafka's names. Groups and offsets are counted when they are asked for, by the
// shards themselves; what Kafka shows as a rate is its counter.
type groupMetrics struct {
	c *coordinators

	commits, expired, deleted          prometheus.Counter // of partitions
	rebalances, consumerRebalances     prometheus.Counter
	queueTime, processingTime          *latency
	flushTime                          *latency
	loadTime, rebalanceTime            *latency
	groups, offsets, shards, queueSize *prometheus.Desc
	states                             map[string]*prometheus.Desc   // by protocol
	managed                            map[string][]*prometheus.Desc // by Kafka's attribute
	times                              map[*latency]*prometheus.Desc
}

const groupMetricsPrefix = "kafka_server_groupcoordinatormetrics_"

// groupManagers are the names under which exporters show GroupMetadataManager: its domain is kafka.coordinator.group, and some rules file
// everything under kafka.server.
var groupManagers = [...]string{"kafka_server_groupmetadatamanager_", "kafka_coordinator_group_groupmetadatamanager_"}

// managedGroups are its attributes, with the state of classic groups that each counts.
var managedGroups = map[string]string{
	"numgroups": "", "numgroupspreparingrebalance": group.Preparing.String(), "numgroupscompletingrebalance": group.Completing.String(),
	"numgroupsstable": group.Stable.String(), "numgroupsempty": group.Empty.String(), "numgroupsdead": deadState,
}

const managedOffsets = "numoffsets"

// deadState is a group's that is being deleted in Kafka. Here it is gone at once.
const deadState = "Dead"

// countedStates are those of groups by protocol.
var countedStates = map[string][]string{
	classicType:  {group.Empty.String(), group.Preparing.String(), group.Completing.String(), group.Stable.String(), deadState},
	consumerType: {consumer.Empty.String(), consumer.Assigning.String(), consumer.Reconciling.String(), consumer.Stable.String(), deadState},
}

func newGroupMetrics(c *coordinators) *groupMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: groupMetricsPrefix + name, Help: help})
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(groupMetricsPrefix+name, help, labels, nil)
	}
	m := &groupMetrics{
		c:                  c,
		commits:            counter("offset_commit_count", "Partitions of which an offset was committed."),
		expired:            counter("offset_expiration_count", "Partitions whose committed offset has expired."),
		deleted:            counter("offset_deletion_count", "Partitions whose committed offset was deleted, with its topic or group or by itself."),
		rebalances:         counter("group_completed_rebalance_count", "Rebalances of classic groups that ended with an assignment."),
		consumerRebalances: counter("consumer_group_rebalance_count", "Epochs that consumer groups were given."),
		groups:             gauge("group_count", "Groups by protocol.", "protocol"),
		offsets:            gauge("offset_count", "Partitions of which a group has committed an offset."),
		states: map[string]*prometheus.Desc{
			classicType:  gauge("classic_group_count", "Groups of the classic protocol by state.", "state"),
			consumerType: gauge("consumer_group_count", "Groups of the consumer protocol by state.", "state"),
		},
		shards:    gauge("num_partitions", "Coordinator shards of this node by state.", "state"),
		queueSize: gauge("event_queue_size", "Requests that shards have not looked at yet."),
		managed:   map[string][]*prometheus.Desc{},
		times:     map[*latency]*prometheus.Desc{},
	}
	for _, prefix := range groupManagers {
		for name := range managedGroups {
			m.managed[name] = append(m.managed[name], prometheus.NewDesc(prefix+name, "Groups of the classic protocol, all or in one state.", nil, nil))
		}
		m.managed[managedOffsets] = append(m.managed[managedOffsets], prometheus.NewDesc(prefix+managedOffsets, "Partitions of which a group has committed an offset.", nil, nil))
	}
	series := func(name, help string) *latency {
		l := new(latency)
		m.times[l] = prometheus.NewDesc(name, help, nil, nil)
		return l
	}
	m.queueTime = series(groupMetricsPrefix+"event_queue_time_ms", "Milliseconds until a shard looked at a request.")
	m.processingTime = series(groupMetricsPrefix+"event_processing_time_ms", "Milliseconds that a shard took for a request, without what it then waited for.")
	m.flushTime = series(groupMetricsPrefix+"batch_flush_time_ms", "Milliseconds of a transaction of the metadata store with what shards had to write.")
	m.loadTime = series(groupMetricsPrefix+"partition_load_time_ms", "Milliseconds until a shard that was taken over served.")
	m.rebalanceTime = series("varve_group_rebalance_time_ms", "Milliseconds from the first sign of change until a group was stable.")
	return m
}

// groupCount is what a shard counts.
type groupCount struct {
	states  map[string]map[string]int // by protocol and state
	offsets int
}

func (sh *shard) count() groupCount {
	n := groupCount{states: map[string]map[string]int{classicType: {}, consumerType: {}}}
	for _, e := range sh.groups {
		n.states[e.kind()][e.state()]++
		for _, c := range e.chunks {
			n.offsets += len(c.list)
		}
	}
	return n
}

// groupCountWait bounds how long a shard is waited for.
const groupCountWait = time.Second

// Describe implements prometheus.Collector.
func (m *groupMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.groups, m.offsets, m.shards, m.queueSize, m.states[classicType], m.states[consumerType]} {
		ch <- d
	}
	for _, list := range m.managed {
		for _, d := range list {
			ch <- d
		}
	}
	for _, d := range m.times {
		ch <- d
	}
}

func (m *groupMetrics) counters() []prometheus.Counter {
	return []prometheus.Counter{m.commits, m.expired, m.deleted, m.rebalances, m.consumerRebalances}
}

// Collect implements prometheus.Collector.
func (m *groupMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	for l, d := range m.times {
		n, sum, q := l.snapshot()
		ch <- prometheus.MustNewConstSummary(d, n, sum, q)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	all, active, loading, queued := m.census()
	gauge(m.shards, active, "active")
	gauge(m.shards, loading, "loading")
	gauge(m.shards, 0, "failed") // one that fails is taken up anew
	gauge(m.queueSize, queued)
	gauge(m.offsets, all.offsets)
	for protocol, states := range all.states {
		sum := 0
		for _, n := range states {
			sum += n
		}
		gauge(m.groups, sum, protocol)
		for _, s := range countedStates[protocol] {
			gauge(m.states[protocol], states[s], strings.ToLower(s))
		}
		states[""] = sum
	}
	for name, list := range m.managed {
		n := all.states[classicType][managedGroups[name]]
		if name == managedOffsets {
			n = all.offsets
		}
		for _, d := range list {
			gauge(d, n)
		}
	}
}

// census asks every shard. One that does not answer in time is not counted.
func (m *groupMetrics) census() (all groupCount, active, loading, queued int) {
	all = groupCount{states: map[string]map[string]int{classicType: {}, consumerType: {}}}
	ctx, cancel := context.WithTimeout(context.Background(), groupCountWait)
	defer cancel()
	for _, sh := range m.c.list() {
		if !sh.loaded.Load() {
			loading++
			continue
		}
		active++
		queued += int(sh.waiting.Load())
		n, err := ask(ctx, sh, func(_ time.Time, reply func(groupCount)) { reply(sh.count()) })
		if err != nil {
			continue
		}
		all.offsets += n.offsets
		for protocol, states := range n.states {
			for s, k := range states {
				all.states[protocol][s] += k
			}
		}
	}
	return all, active, loading, queued
}

// list are the shards of this node, loaded or not.
func (c *coordinators) list() []*shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*shard, 0, len(c.mu.shards))
	for _, sh := range c.mu.shards {
		all = append(all, sh)
	}
	return all
}

// moved follows a group's steps: when a rebalance began, that it ended, and what it took.
func (sh *shard) moved(e *groupEntry) {
	m := sh.c.metrics
	if e.c != nil {
		epoch := e.c.Epoch()
		if e.epoch != 0 && epoch > e.epoch {
			m.consumerRebalances.Add(float64(epoch - e.epoch))
		}
		e.epoch = epoch
	} else {
		e.epoch = 0
	}
	now := e.state()
	before := e.shown
	if now == before {
		return
	}
	e.shown = now
	switch now {
	case group.Stable.String():
		if before == group.Completing.String() {
			m.rebalances.Inc()
		}
		if !e.restless.IsZero() {
			m.rebalanceTime.observe(time.Since(e.restless))
		}
		e.restless = time.Time{}
	case group.Empty.String():
		e.restless = time.Time{}
	default:
		if e.restless.IsZero() {
			e.restless = time.Now()
		}
	}
}
