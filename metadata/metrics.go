// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the Store counts. A nil *metrics counts nothing.
type metrics struct {
	txnSeconds *prometheus.HistogramVec
	refused    *prometheus.CounterVec
	revision   prometheus.Gauge
	reloads    *prometheus.CounterVec
	leaseAge   prometheus.Gauge
}

var (
	txnOutcomes   = []string{"ok", "unavailable", "unknown", "refused"}
	refusals      = []string{"fenced", "conflict", "other"}
	reloadReasons = []string{"start", "compacted", "difference"}
)

func newMetrics() *metrics {
	m := &metrics{
		txnSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "varve_metadata_txn_seconds", Help: "Time of one metadata transaction, by outcome.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_metadata_changes_refused_total", Help: "Changes that did not happen, by reason.",
		}, []string{"reason"}),
		revision: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_metadata_image_revision", Help: "Revision of the metadata image in use.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_metadata_loads_total", Help: "Full loads of the metadata image, by reason.",
		}, []string{"reason"}),
		leaseAge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_metadata_lease_age_seconds", Help: "Time since the last successful keepalive was sent.",
		}),
	}
	for _, o := range txnOutcomes {
		m.txnSeconds.WithLabelValues(o)
	}
	for _, o := range refusals {
		m.refused.WithLabelValues(o)
	}
	for _, o := range reloadReasons {
		m.reloads.WithLabelValues(o)
	}
	return m
}

// register is for a store that was opened: one that was refused may be opened again with the same registerer.
func (m *metrics) register(r prometheus.Registerer) {
	if r != nil {
		r.MustRegister(m.txnSeconds, m.refused, m.revision, m.reloads, m.leaseAge)
	}
}

func (m *metrics) txn(took time.Duration, err error) {
	outcome := "ok"
	switch {
	case err == nil:
	case errors.Is(err, ErrUnknown):
		outcome = "unknown"
	case errors.Is(err, ErrUnavailable):
		outcome = "unavailable"
	default:
		outcome = "refused"
	}
	m.txnSeconds.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *metrics) failed(err error) {
	switch {
	case errors.Is(err, ErrFenced):
		m.refused.WithLabelValues("fenced").Inc()
	case errors.Is(err, ErrConflict):
		m.refused.WithLabelValues("conflict").Inc()
	default:
		m.refused.WithLabelValues("other").Inc()
	}
}

func (m *metrics) image(img *Image) { m.revision.Set(float64(img.Revision)) }
