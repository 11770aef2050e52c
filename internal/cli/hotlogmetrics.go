// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/broker/hotlog"
)

// hotLogCollector shows the hot log of each data directory, as it is at a scrape.
type hotLogCollector struct {
	logs    []*hotlog.DB
	dirs    []string // their labels
	metrics []hotLogMetric
	sync    *prometheus.Desc
}

type hotLogMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*hotlog.Metrics) float64
}

func newHotLogCollector(logs []*hotlog.DB, dirs []string) *hotLogCollector {
	label := []string{"dir"}
	metric := func(kind prometheus.ValueType, name, help string, value func(*hotlog.Metrics) float64) hotLogMetric {
		return hotLogMetric{prometheus.NewDesc("varve_hotlog_"+name, help, label, nil), kind, value}
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return &hotLogCollector{logs: logs, dirs: dirs, metrics: []hotLogMetric{
		metric(counter, "appended_bytes_total", "Bytes of record batches appended, as leader and as follower.", func(m *hotlog.Metrics) float64 { return float64(m.AppendedBytes) }),
		metric(counter, "written_bytes_total", "Bytes written for record batches: frames of the log, and the flushes and compactions of Pebble.", func(m *hotlog.Metrics) float64 { return float64(m.WrittenBytes) }),
		metric(counter, "appends_total", "Record batches appended.", func(m *hotlog.Metrics) float64 { return float64(m.Appends) }),
		metric(counter, "slow_operations_total", "Operations of the disk that took so long that the log tells of each.", func(m *hotlog.Metrics) float64 { return float64(m.SlowOps) }),
		metric(counter, "stalls_total", "Times at which writes were held back by the flushes or compactions of Pebble.", func(m *hotlog.Metrics) float64 { return float64(m.Stalls) }),
		metric(gauge, "disk_bytes", "Bytes that the hot log takes on the disk.", func(m *hotlog.Metrics) float64 { return float64(m.DiskBytes) }),
		metric(gauge, "live_bytes", "Bytes of record batches that are not trimmed.", func(m *hotlog.Metrics) float64 { return float64(m.LiveBytes) }),
		metric(gauge, "queued_bytes", "Bytes that wait to be written.", func(m *hotlog.Metrics) float64 { return float64(m.QueuedBytes) }),
		metric(gauge, "available_bytes", "Free space of the disk at the last look.", func(m *hotlog.Metrics) float64 { return float64(m.AvailableBytes) }),
		metric(gauge, "refuse_below_bytes", "Free space below which appends are refused.", func(m *hotlog.Metrics) float64 { return float64(m.HighWaterBytes) }),
		metric(gauge, "full", "1 while appends are refused for want of space.", func(m *hotlog.Metrics) float64 {
			if m.DiskFull {
				return 1
			}
			return 0
		}),
	}, sync: prometheus.NewDesc("varve_hotlog_sync_seconds", "Time from the beginning of a frame's write to the end of its sync.", label, nil)}
}

// Describe implements prometheus.Collector.
func (c *hotLogCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
	ch <- c.sync
}

// Collect implements prometheus.Collector.
func (c *hotLogCollector) Collect(ch chan<- prometheus.Metric) {
	for i, db := range c.logs {
		now := db.Metrics()
		for _, m := range c.metrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&now), c.dirs[i])
		}
		buckets, total := make(map[float64]uint64, len(now.Sync.Bounds)), uint64(0)
		for b, bound := range now.Sync.Bounds {
			total += now.Sync.Counts[b]
			buckets[bound.Seconds()] = total
		}
		total += now.Sync.Counts[len(now.Sync.Bounds)]
		ch <- prometheus.MustNewConstHistogram(c.sync, total, now.Sync.Sum.Seconds(), buckets, c.dirs[i])
	}
}
