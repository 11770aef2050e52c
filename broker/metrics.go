// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this package's own; those that can be read off the partitions are collected by package ops.
type metrics struct {
	takeovers  prometheus.Counter
	copied     prometheus.Counter
	unverified prometheus.Counter
	verifying  prometheus.Summary
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	const txns = "kafka_server_addpartitionstotxnmanager_"
	m := &metrics{
		takeovers:  prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_broker_takeovers_total", Help: "Leaderships begun by this node."}),
		copied:     prometheus.NewCounter(prometheus.CounterOpts{Name: "kafka_server_brokertopicmetrics_replicationbytesin_total", Help: "Bytes of batches copied from leaders."}),
		unverified: prometheus.NewCounter(prometheus.CounterOpts{Name: txns + "verificationfailurerate_total", Help: "Partitions on which a transaction was not let begin."}),
		verifying:  prometheus.NewSummary(prometheus.SummaryOpts{Name: txns + "verificationtimems", Help: "How long coordinators of transactions took to answer leaders."}),
	}
	for _, c := range []prometheus.Collector{m.takeovers, m.copied, m.unverified, m.verifying} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// verified counts one question to a coordinator.
func (m *metrics) verified(out []TxnVerdict, took time.Duration) {
	m.verifying.Observe(float64(took) / float64(time.Millisecond))
	for i := range out {
		if out[i].Err != nil {
			m.unverified.Inc()
		}
	}
}
