// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Names of the metrics.
const (
	metricRequests = "varve_objstore_requests_total"
	metricSeconds  = "varve_objstore_request_duration_seconds"
	metricBytes    = "varve_objstore_bytes_total"
	metricInFlight = "varve_objstore_requests_in_flight"
)

// Metrics counts requests by operation and outcome, their duration and the bytes moved. Placed under Retry it counts tries,
// which is what a store bills. Every series exists from the start. A second store on one registry shares the series.
func Metrics(s Store, reg prometheus.Registerer) (Store, error) {
	m := &measured{inner: s}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricRequests, Help: "Requests to the object store, each try counted, by operation and outcome."}, []string{"op", "outcome"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricSeconds, Help: "Duration of requests to the object store.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}}, []string{"op"})
	moved := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricBytes, Help: "Bytes of objects created in, and ranges read from, the object store."}, []string{"op"})
	inFlight := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricInFlight, Help: "Requests to the object store under way."}, []string{"op"})
	var err error
	requests = register(reg, requests, &err)
	seconds = register(reg, seconds, &err)
	moved = register(reg, moved, &err)
	inFlight = register(reg, inFlight, &err)
	if err != nil {
		return nil, fmt.Errorf("register object store metrics: %w", err)
	}
	m.ops = make(map[Op]*opMetrics, len(Ops()))
	for _, op := range Ops() {
		o := &opMetrics{outcomes: map[Outcome]prometheus.Counter{}, seconds: seconds.WithLabelValues(string(op)), inFlight: inFlight.WithLabelValues(string(op))}
		for _, outcome := range Outcomes() {
			o.outcomes[outcome] = requests.WithLabelValues(string(op), string(outcome))
		}
		if op == OpCreate || op == OpGet {
			o.bytes = moved.WithLabelValues(string(op))
		}
		m.ops[op] = o
	}
	return m, nil
}

// register returns the collector that is in the registry already, if there is one.
func register[C prometheus.Collector](reg prometheus.Registerer, c C, err *error) C {
	rerr := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(rerr, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	*err = errors.Join(*err, rerr)
	return c
}

type measured struct {
	inner Store
	ops   map[Op]*opMetrics
}

type opMetrics struct {
	outcomes map[Outcome]prometheus.Counter
	seconds  prometheus.Observer
	bytes    prometheus.Counter
	inFlight prometheus.Gauge
}

// begin counts a request in; the returned function counts it out.
func (m *measured) begin(op Op) func(err error, bytes int64) {
	o := m.ops[op]
	o.inFlight.Inc()
	start := time.Now()
	return func(err error, bytes int64) {
		o.inFlight.Dec()
		o.seconds.Observe(time.Since(start).Seconds())
		o.outcomes[OutcomeOf(err)].Inc()
		if o.bytes != nil && bytes > 0 {
			o.bytes.Add(float64(bytes))
		}
	}
}

func (m *measured) Create(ctx context.Context, key string, body Body, o PutOptions) error {
	done := m.begin(OpCreate)
	err := m.inner.Create(ctx, key, body, o)
	if err != nil {
		done(err, 0)
		return err
	}
	done(nil, body.Size())
	return nil
}

func (m *measured) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	done := m.begin(OpGet)
	out, err := m.inner.Get(ctx, key, off, n, dst)
	done(err, int64(len(out)-len(dst)))
	return out, err
}

func (m *measured) Stat(ctx context.Context, key string) (Info, error) {
	done := m.begin(OpStat)
	info, err := m.inner.Stat(ctx, key)
	done(err, 0)
	return info, err
}

// List counts one request, whatever its pages. The callback's own error is an outcome "other".
func (m *measured) List(ctx context.Context, prefix, startAfter string, fn func(Info) error) error {
	done := m.begin(OpList)
	err := m.inner.List(ctx, prefix, startAfter, fn)
	done(err, 0)
	return err
}

// Delete counts one request with the outcome of the first key that failed.
func (m *measured) Delete(ctx context.Context, keys []string) []error {
	done := m.begin(OpDelete)
	errs := m.inner.Delete(ctx, keys)
	var first error
	for _, err := range errs {
		if first == nil {
			first = err
		}
	}
	done(first, 0)
	return errs
}

func (m *measured) AbortUpload(ctx context.Context, key, uploadID string) error {
	done := m.begin(OpAbort)
	err := m.inner.AbortUpload(ctx, key, uploadID)
	done(err, 0)
	return err
}

func (m *measured) Close() error { return m.inner.Close() }
