// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are Kafka's names. Every series exists from the start; a request touches a handful of counters, a record none.
type metrics struct {
	connections prometheus.Gauge
	inFlight    prometheus.Gauge
	perAPI      map[int16]*apiMetrics
	topics      *topicMetricsSet
	sessions    *sessionMetrics
	fromFiles   prometheus.Counter
	copiedOut   prometheus.Counter
}

type apiMetrics struct {
	requests []prometheus.Counter // by version, from the lowest served
	lowest   int16
	errors   prometheus.Counter
	total    *latency
	queue    *latency
	local    *latency
	send     *latency
	throttle *latency
}

func newMetrics(r prometheus.Registerer, t *table) (*metrics, error) {
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kafka_server_socketservermetrics_connection_count", Help: "Open client connections."}),
		inFlight:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_request_memory_used_bytes", Help: "Bytes of requests in flight, as admitted."}),
		perAPI:      make(map[int16]*apiMetrics, len(t.rows)),
		topics:      newTopicMetricsSet(),
		sessions:    newSessionMetrics(),
		copiedOut:   prometheus.NewCounter(prometheus.CounterOpts{Name: "kafka_server_brokertopicmetrics_replicationbytesout_total", Help: "Bytes of batches given to followers."}),
		fromFiles:   prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_fetch_sent_from_files_bytes_total", Help: "Bytes of fetch answers that the kernel sent from the hot log's files."}),
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kafka_network_requestmetrics_requests_total", Help: "Requests by API and version."}, []string{"request", "version"})
	errs := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kafka_network_requestmetrics_errors_total", Help: "Answers that carry an error code."}, []string{"request"})
	times := newLatencies()
	for i := range t.rows {
		a := &t.rows[i]
		am := &apiMetrics{lowest: max(a.min-a.silentBelow, a.refuseBelow), errors: errs.WithLabelValues(a.name)}
		for v := am.lowest; v <= a.max; v++ {
			am.requests = append(am.requests, requests.WithLabelValues(a.name, strconv.Itoa(int(v))))
		}
		am.total, am.queue = times.series("totaltimems", a.name), times.series("requestqueuetimems", a.name)
		am.local, am.send = times.series("localtimems", a.name), times.series("responsesendtimems", a.name)
		am.throttle = times.series("throttletimems", a.name)
		m.perAPI[a.key] = am
	}
	all := append([]prometheus.Collector{m.connections, m.inFlight, m.fromFiles, m.copiedOut, requests, errs, times}, m.topics.collectors()...)
	for _, c := range append(all, m.sessions.collectors()...) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// request counts one answered call.
func (m *metrics) request(c *call, a *answer, began, served time.Time) {
	am := m.perAPI[c.Key]
	if i := int(c.Version - am.lowest); i >= 0 && i < len(am.requests) {
		am.requests[i].Inc()
	}
	if a.failed || c.unsupported {
		am.errors.Inc()
	}
	sent := time.Now()
	am.total.observe(sent.Sub(c.arrived))
	am.queue.observe(began.Sub(c.arrived))
	am.local.observe(served.Sub(began))
	am.send.observe(sent.Sub(served))
	am.throttle.observe(c.throttle)
}

// topicMetrics are the counters of one topic, and of all topics together where the name is empty.
type topicMetrics struct {
	all                                                  *topicMetrics // nil in the sum itself
	messagesIn, bytesIn, bytesOut, bytesRejected         prometheus.Counter
	produceRequests, fetchRequests                       prometheus.Counter
	failedProduce, failedFetch                           prometheus.Counter
	invalidCRC, invalidSequence, noKey, remoteFetchBytes prometheus.Counter
}

// topicMetricsSet makes topicMetrics. In Prometheus an empty label is no label, which is how Kafka's exporter shows the sum.
type topicMetricsSet struct {
	vecs []*prometheus.CounterVec
	sum  *topicMetrics
}

var topicCounters = [...]struct{ name, help string }{
	{"messagesin", "Records appended."},
	{"bytesin", "Bytes of batches appended."},
	{"bytesout", "Bytes of batches fetched."},
	{"bytesrejected", "Bytes of batches refused."},
	{"totalproducerequests", "Partitions of produce requests."},
	{"totalfetchrequests", "Partitions read for fetch requests."},
	{"failedproducerequests", "Partitions of produce requests that failed."},
	{"failedfetchrequests", "Partitions of fetch requests that failed."},
	{"invalidmessagecrcrecords", "Batches with a wrong checksum."},
	{"invalidoffsetorsequencerecords", "Batches out of sequence."},
	{"nokeycompactedtopicrecords", "Batches without a key for a compacted topic."},
	{"remotefetchbytes", "Bytes of batches read from the bucket."},
}

func newTopicMetricsSet() *topicMetricsSet {
	s := &topicMetricsSet{}
	for _, c := range topicCounters {
		s.vecs = append(s.vecs, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kafka_server_brokertopicmetrics_" + c.name + "_total", Help: c.help}, []string{"topic"}))
	}
	s.sum = s.make("", nil)
	return s
}

func (s *topicMetricsSet) of(topic string) *topicMetrics { return s.make(topic, s.sum) }

func (s *topicMetricsSet) make(topic string, all *topicMetrics) *topicMetrics {
	m := &topicMetrics{all: all}
	for i, c := range []*prometheus.Counter{
		&m.messagesIn, &m.bytesIn, &m.bytesOut, &m.bytesRejected, &m.produceRequests, &m.fetchRequests, &m.failedProduce, &m.failedFetch,
		&m.invalidCRC, &m.invalidSequence, &m.noKey, &m.remoteFetchBytes,
	} {
		*c = s.vecs[i].WithLabelValues(topic)
	}
	return m
}

func (s *topicMetricsSet) forget(topic string) {
	for _, v := range s.vecs {
		v.DeleteLabelValues(topic)
	}
}

func (s *topicMetricsSet) collectors() (all []prometheus.Collector) {
	for _, v := range s.vecs {
		all = append(all, v)
	}
	return all
}

// appended counts one accepted batch.
func (m *topicMetrics) appended(records, bytes int) {
	for ; m != nil; m = m.all {
		m.produceRequests.Inc()
		m.messagesIn.Add(float64(records))
		m.bytesIn.Add(float64(bytes))
	}
}

// refused counts one batch that was not stored.
func (m *topicMetrics) refused(code Code, bytes int) {
	for ; m != nil; m = m.all {
		m.produceRequests.Inc()
		m.failedProduce.Inc()
		m.bytesRejected.Add(float64(bytes))
		switch code {
		case codeCorruptMessage:
			m.invalidCRC.Inc()
		case codeOutOfOrderSequence:
			m.invalidSequence.Inc()
		}
	}
}

// fetched counts one partition of a fetch answer.
func (m *topicMetrics) fetched(code Code, bytes int, cold bool) {
	for ; m != nil; m = m.all {
		m.fetchRequests.Inc()
		m.bytesOut.Add(float64(bytes))
		if cold {
			m.remoteFetchBytes.Add(float64(bytes))
		}
		if code != codeNone {
			m.failedFetch.Inc()
		}
	}
}

// sessionMetrics are those of the fetch session cache.
type sessionMetrics struct {
	sessions, partitions prometheus.Gauge
	evictions            prometheus.Counter
}

func newSessionMetrics() *sessionMetrics {
	return &sessionMetrics{
		sessions:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "kafka_server_fetchsessioncache_numincrementalfetchsessions", Help: "Fetch sessions."}),
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", Help: "Partitions in fetch sessions."}),
		evictions:  prometheus.NewCounter(prometheus.CounterOpts{Name: "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", Help: "Fetch sessions that made room for others."}),
	}
}

func (m *sessionMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.sessions, m.partitions, m.evictions}
}
