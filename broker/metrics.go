// SPDX-License-Identifier: Apache-2.0

package broker

import "github.com/prometheus/client_golang/prometheus"

// metrics are this package's own; those that can be read off the partitions are collected by package ops.
type metrics struct{ takeovers prometheus.Counter }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{takeovers: prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_broker_takeovers_total", Help: "Leaderships begun by this node."})}
	return m, r.Register(m.takeovers)
}
