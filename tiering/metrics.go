// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"github.com/prometheus/client_golang/prometheus"
)

type archiverMetrics struct {
	led, hotOver, lastSuccess                    prometheus.Gauge
	failures, skipped, dropped, folds, evictions prometheus.Counter
	sealedBytes, copiedBytes                     prometheus.Counter
	seals                                        *prometheus.CounterVec
	sealSeconds                                  prometheus.Histogram
}

// registered registers c, or gives the collector that is registered under its name already.
func registered[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	if err := r.Register(c); err != nil {
		if are, ok := err.(prometheus.AlreadyRegisteredError); ok {
			if old, ok := are.ExistingCollector.(C); ok {
				return old
			}
		}
		panic(err) // two metrics of one name: a bug that the first start shows
	}
	return c
}

func counter(r prometheus.Registerer, name, help string) prometheus.Counter {
	return registered(r, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func gauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	return registered(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func counters(r prometheus.Registerer, name, help, label string, values ...string) *prometheus.CounterVec {
	v := registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

func newArchiverMetrics(r prometheus.Registerer) *archiverMetrics {
	return &archiverMetrics{
		led:         gauge(r, "varve_archiver_partitions", "Led partitions the archiver looks after."),
		hotOver:     gauge(r, "varve_archiver_hot_over_budget_bytes", "Hot bytes above the node's hot budget."),
		lastSuccess: gauge(r, "varve_archiver_last_success_timestamp_seconds", "When a partition was last archived without an error."),
		failures:    counter(r, "varve_archiver_failures_total", "Failed steps of partitions; each is tried again."),
		skipped:     counter(r, "varve_archiver_expired_unsealed_total", "Ranges that expired before they were sealed and went without upload."),
		dropped:     counter(r, "varve_archiver_dropped_segments_total", "Segments that retention or DeleteRecords took out of manifests."),
		folds:       counter(r, "varve_archiver_folds_total", "Manifest pages written."),
		evictions:   counter(r, "varve_archiver_evictions_total", "Trims of hot logs."),
		sealedBytes: counter(r, "varve_archiver_sealed_bytes_total", "Bytes of batches in committed segments."),
		copiedBytes: counter(r, "kafka_server_brokertopicmetrics_remotecopybytes_total", "Bytes of batches in committed segments, as varve_archiver_sealed_bytes_total."),
		seals:       counters(r, "varve_archiver_seals_total", "Attempts to seal a segment by outcome.", "outcome", "ok", "failed", "lost"),
		sealSeconds: registered(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "varve_archiver_seal_seconds",
			Help: "From the start of a segment's upload to its commit.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 15)})),
	}
}

// registerLag has the lag computed when it is scraped: no partition pays for it otherwise.
func registerLag(r prometheus.Registerer, lag func() float64) {
	registered(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_archiver_seal_lag_seconds",
		Help: "Age of the oldest data of a led partition that is not sealed yet."}, lag))
}

type readerMetrics struct {
	gets, bytes, cache *prometheus.CounterVec
	corrupt            prometheus.Counter
	flights            prometheus.Gauge
	seconds            prometheus.Histogram
}

// The kinds of GETs.
const (
	getIndex    = "index"
	getData     = "data"
	getPrefetch = "prefetch"
	getPage     = "page"
)

func newReaderMetrics(r prometheus.Registerer) *readerMetrics {
	return &readerMetrics{
		gets:    counters(r, "varve_tier_gets_total", "Ranged GETs of cold reads by kind.", "kind", getIndex, getData, getPrefetch, getPage),
		bytes:   counters(r, "varve_tier_get_bytes_total", "Bytes got by cold reads by kind.", "kind", getIndex, getData, getPrefetch, getPage),
		cache:   counters(r, "varve_tier_cache_total", "Look-ups of data groups in the cache by result.", "result", "hit", "joined", "miss"),
		corrupt: counter(r, "varve_tier_corrupt_total", "Ranges whose bytes failed their checksums, after a second GET."),
		flights: gauge(r, "varve_tier_flights", "Cold GETs under way or waiting for memory."),
		seconds: registered(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "varve_tier_get_seconds",
			Help: "Time of a cold GET, waiting for memory not counted.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)})),
	}
}
