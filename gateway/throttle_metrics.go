// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/gateway/quota"
)

// quotaMetrics shows, under Kafka's names, what clients with a quota used lately and how long they had to wait. A client that is idle
// for long has no series; user or client_id is empty where the quota does not tell them apart.
type quotaMetrics struct {
	q        *quotas
	used     [quota.Kinds]*prometheus.Desc
	throttle [quota.Kinds]*prometheus.Desc
}

// quotaSeries are Kafka's names by kind.
var quotaSeries = [quota.Kinds]struct{ group, used, help string }{
	quota.Produce:  {"produce", "byte_rate", "Bytes per second of produce requests."},
	quota.Fetch:    {"fetch", "byte_rate", "Bytes per second of fetch answers."},
	quota.Request:  {"request", "request_time", "Time on a processor, in percent of one."},
	quota.Mutation: {"controllermutation", "tokens", "Partitions that may be made or deleted at once."},
}

func newQuotaMetrics(q *quotas) *quotaMetrics {
	m := &quotaMetrics{q: q}
	for k, s := range quotaSeries {
		if s.group == "" {
			continue // connections are counted by address, which would be a series for each
		}
		prefix := "kafka_server_" + s.group + "_"
		m.used[k] = prometheus.NewDesc(prefix+s.used, s.help, []string{"user", "client_id"}, nil)
		m.throttle[k] = prometheus.NewDesc(prefix+"throttle_time", "Mean of the delays that clients were given, in milliseconds.", []string{"user", "client_id"}, nil)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *quotaMetrics) Describe(ch chan<- *prometheus.Desc) {
	for k := range m.used {
		if m.used[k] != nil {
			ch <- m.used[k]
			ch <- m.throttle[k]
		}
	}
}

// Collect implements prometheus.Collector.
func (m *quotaMetrics) Collect(ch chan<- prometheus.Metric) {
	shown := map[quota.Use]bool{}
	m.q.meters.Each(time.Now(), func(u quota.Use) {
		// Clients choose their ids: two that look the same must not spoil all metrics.
		key := quota.Use{Kind: u.Kind, Client: quota.Client{User: validLabel(u.Client.User), ID: validLabel(u.Client.ID)}}
		if m.used[u.Kind] == nil || shown[key] {
			return
		}
		shown[key] = true
		v := u.Rate
		if u.Kind == quota.Mutation {
			v = u.Tokens
		}
		user, id := key.Client.User, key.Client.ID
		ch <- prometheus.MustNewConstMetric(m.used[u.Kind], prometheus.GaugeValue, v, user, id)
		ch <- prometheus.MustNewConstMetric(m.throttle[u.Kind], prometheus.GaugeValue, u.Throttle, user, id)
	})
}

// validLabel is a name as Prometheus takes it.
func validLabel(name string) string { return strings.ToValidUTF8(name, "?") }
