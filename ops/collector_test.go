// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

type fakeSource struct{ rows []PartitionRow }

func (f fakeSource) Replicas() ReplicaCounts {
	return ReplicaCounts{Partitions: 2, Leaders: 1, UnderReplicated: 1, ISRShrinks: 4, LateTxns: 3, MaxLag: 7}
}
func (f fakeSource) Controller() ControllerCounts {
	return ControllerCounts{Active: true, Topics: 1, Partitions: 2, Brokers: 3}
}
func (f fakeSource) EachPartition(fn func(*PartitionRow)) {
	for i := range f.rows {
		fn(&f.rows[i])
	}
}

// scrape returns the exposition text that a scrape of c gets.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestCollector(t *testing.T) {
	text := scrape(t, NewCollector(fakeSource{rows: []PartitionRow{
		{Topic: "logs", Partition: 0, Leads: true, Leader: 1, LogStart: 5, LogEnd: 12, HighWatermark: 10, HotBytes: 100, TierBytes: 900, TierSegments: 2, TopicPartitions: 2},
		{Topic: "logs", Partition: 1, Leader: 2, Follows: true, Lag: 7, LogStart: 1, LogEnd: 3, HighWatermark: 3, HotBytes: 7},
	}}))
	for _, want := range []string{
		"kafka_log_log_size{partition=\"0\",topic=\"logs\"} 1000", "kafka_log_log_size{partition=\"1\",topic=\"logs\"} 7",
		"kafka_log_log_logstartoffset{partition=\"0\",topic=\"logs\"} 5", "kafka_log_log_logendoffset{partition=\"0\",topic=\"logs\"} 12",
		"kafka_log_log_numlogsegments{partition=\"0\",topic=\"logs\"} 2",
		"kafka_topic_partition_current_offset{partition=\"0\",topic=\"logs\"} 10", "kafka_topic_partition_oldest_offset{partition=\"0\",topic=\"logs\"} 5",
		"kafka_topic_partition_leader{partition=\"0\",topic=\"logs\"} 1", "kafka_topic_partitions{topic=\"logs\"} 2",
		"kafka_server_replicafetchermanager_maxlag 7", "kafka_server_fetcherlagmetrics_consumerlag{partition=\"1\",topic=\"logs\"} 7",
		"kafka_server_replicamanager_partitioncount 2", "kafka_server_replicamanager_leadercount 1", "kafka_server_replicamanager_underreplicatedpartitions 1",
		"kafka_server_replicamanager_isrshrinks_total 4", "kafka_server_replicamanager_partitionswithlatetransactionscount 3", "kafka_controller_kafkacontroller_activecontrollercount 1", "kafka_brokers 3",
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no line %s in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "kafka_topic_partition_current_offset{partition=\"1\"") {
		t.Error("a follower speaks for its leader")
	}
	if strings.Contains(text, "consumerlag{partition=\"0\"") {
		t.Error("a leader lags behind itself")
	}
}

// TestCollectorSeriesExistFromTheStart: an alert on a series that appears only with trouble never fires.
func TestCollectorSeriesExistFromTheStart(t *testing.T) {
	text := scrape(t, NewCollector(fakeSource{}))
	for _, m := range nodeMetrics() {
		name := strings.Split(m.desc.String(), "\"")[1]
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no series %s without partitions", name)
		}
	}
}
