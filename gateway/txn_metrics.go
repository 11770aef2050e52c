// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/gateway/txn"
)

// txnMetrics tell what the transactional ids of this node's shards do.
type txnMetrics struct {
	c        *coordinators
	ids      *prometheus.Desc
	commits  prometheus.Counter
	aborts   prometheus.Counter
	timeouts prometheus.Counter
	retries  prometheus.Counter
}

func newTxnMetrics(r prometheus.Registerer, c *coordinators) (*txnMetrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &txnMetrics{
		c:        c,
		ids:      prometheus.NewDesc("varve_transactional_ids", "Transactional ids that this node coordinates, by state.", []string{"state"}, nil),
		commits:  counter("varve_transaction_commits_total", "Transactions that clients committed here."),
		aborts:   counter("varve_transaction_aborts_total", "Transactions that clients aborted here."),
		timeouts: counter("varve_transaction_timeouts_total", "Transactions aborted because their time was over."),
		retries:  counter("varve_transaction_marker_retries_total", "Partitions that a marker had to be sent to again."),
	}
	for _, x := range []prometheus.Collector{m, m.commits, m.aborts, m.timeouts, m.retries} {
		if err := r.Register(x); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *txnMetrics) ended(commit bool) {
	if commit {
		m.commits.Inc()
	} else {
		m.aborts.Inc()
	}
}

// Describe is prometheus.Collector's.
func (m *txnMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.ids }

// Collect is prometheus.Collector's.
func (m *txnMetrics) Collect(ch chan<- prometheus.Metric) {
	var counts [txn.Dead]int
	shards, _ := m.c.all() // while one is loaded there is nothing to tell
	for _, sh := range shards {
		for _, e := range sh.txns.entries() {
			if is := e.shown.Load(); is != nil {
				counts[is.State]++
			}
		}
	}
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(m.ids, prometheus.GaugeValue, float64(n), txn.State(state).String())
	}
}
