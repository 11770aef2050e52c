// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// latency is a log-linear histogram of microseconds: one atomic add per observation, four buckets per doubling.
type latency struct {
	buckets [latencyBuckets]atomic.Uint64
	micros  atomic.Uint64
}

// latencyBuckets covers one microsecond to more than an hour.
const latencyBuckets = 4 * 32

func (l *latency) observe(d time.Duration) {
	us := uint64(max(d.Microseconds(), 0))
	l.buckets[bucketOf(us)].Add(1)
	l.micros.Add(us)
}

func bucketOf(us uint64) int {
	if us < 4 {
		return int(us)
	}
	exp := bits.Len64(us) - 1 // ≥ 2
	return min(4*(exp-1)+int(us>>(exp-2))&3, latencyBuckets-1)
}

// bucketTop is the first microsecond above bucket i.
func bucketTop(i int) float64 {
	if i < 4 {
		return float64(i + 1)
	}
	exp := i/4 + 1
	return math.Ldexp(float64(i%4+5), exp-2)
}

// quantiles are those that the usual dashboards query.
var quantiles = []float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999}

// snapshot returns count, sum and quantiles in milliseconds.
func (l *latency) snapshot() (count uint64, sum float64, q map[float64]float64) {
	var b [latencyBuckets]uint64
	for i := range b {
		b[i] = l.buckets[i].Load()
		count += b[i]
	}
	q = make(map[float64]float64, len(quantiles))
	seen, i := uint64(0), 0
	for _, p := range quantiles {
		want := uint64(math.Ceil(p * float64(count)))
		for i < latencyBuckets && seen+b[i] < want {
			seen += b[i]
			i++
		}
		q[p] = 0
		if count > 0 {
			q[p] = bucketTop(i) / 1000
		}
	}
	return count, float64(l.micros.Load()) / 1000, q
}

// latencies exports the time series of all APIs as summaries, Kafka's form.
type latencies struct {
	all   []latencySeries
	descs map[string]*prometheus.Desc
}

type latencySeries struct {
	desc    *prometheus.Desc
	request string
	l       *latency
}

func newLatencies() *latencies { return &latencies{descs: map[string]*prometheus.Desc{}} }

func (s *latencies) series(name, request string) *latency {
	d := s.descs[name]
	if d == nil {
		d = prometheus.NewDesc("kafka_network_requestmetrics_"+name, "Milliseconds by API since the start.", []string{"request"}, nil)
		s.descs[name] = d
	}
	l := new(latency)
	s.all = append(s.all, latencySeries{d, request, l})
	return l
}

// Describe implements prometheus.Collector.
func (s *latencies) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *latencies) Collect(ch chan<- prometheus.Metric) {
	for _, e := range s.all {
		n, sum, q := e.l.snapshot()
		ch <- prometheus.MustNewConstSummary(e.desc, n, sum, q, e.request)
	}
}
