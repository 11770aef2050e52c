// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

func describeOne(entries []Entry, name string) string {
	for _, e := range entries {
		if e.Name != name {
			continue
		}
		show := func(v *string) string {
			if v == nil {
				return "null"
			}
			return *v
		}
		var syn []string
		for _, s := range e.Synonyms {
			syn = append(syn, fmt.Sprintf("%s=%s(%d)", s.Name, show(s.Value), s.Source))
		}
		ro := ""
		if e.ReadOnly {
			ro = " read-only"
		}
		return strings.TrimSpace(fmt.Sprintf("%s=%s(%d)%s %s", e.Name, show(e.Value), e.Source, ro, strings.Join(syn, " ")))
	}
	return "absent"
}

// TestDescribe pins values, sources and the order of synonyms. Rows marked K were read off Apache Kafka 4.4.0 with the same
// settings (defaults apart).
func TestDescribe(t *testing.T) {
	tests := []struct {
		name                        string
		static, cluster, node, over map[string]string
		config, topic, broker       string
	}{
		{"K: default", nil, nil, nil, nil, "max.message.bytes",
			"max.message.bytes=1048588(5) message.max.bytes=1048588(5)", ""},
		{"K: no broker config behind it", nil, nil, nil, nil, "remote.log.delete.on.disable", "remote.log.delete.on.disable=false(5)", ""},
		{"K: best synonym not set", nil, nil, nil, nil, "retention.ms", "retention.ms=604800000(5)", ""},
		{"K: static over default", map[string]string{"log.segment.delete.delay.ms": "1000"}, nil, nil, nil, "file.delete.delay.ms",
			"file.delete.delay.ms=1000(4) log.segment.delete.delay.ms=1000(4) log.segment.delete.delay.ms=60000(5)", ""},
		{"all layers", map[string]string{"min.insync.replicas": "3"}, map[string]string{"min.insync.replicas": "4"}, map[string]string{"min.insync.replicas": "5"}, map[string]string{"min.insync.replicas": "6"}, "min.insync.replicas",
			"min.insync.replicas=6(1) min.insync.replicas=6(1) min.insync.replicas=5(2) min.insync.replicas=4(3) min.insync.replicas=3(4) min.insync.replicas=2(5)",
			"min.insync.replicas=5(2) min.insync.replicas=5(2) min.insync.replicas=4(3) min.insync.replicas=3(4) min.insync.replicas=2(5)"},
		{"other unit in force", map[string]string{"log.retention.hours": "2"}, nil, nil, nil, "retention.ms",
			"retention.ms=7200000(4) log.retention.hours=2(4) log.retention.hours=168(5)", ""},
		{"K: other unit is not this config's value", map[string]string{"log.retention.hours": "2"}, nil, nil, nil, "log.retention.ms",
			"", "log.retention.ms=null(5)"},
		{"K: best unit set", map[string]string{"log.retention.ms": "5"}, nil, nil, nil, "log.retention.ms",
			"", "log.retention.ms=5(4) log.retention.ms=5(4) log.retention.hours=168(5)"},
		{"override", nil, nil, nil, map[string]string{"retention.ms": "9"}, "retention.ms", "retention.ms=9(1) retention.ms=9(1)", ""},
		{"internal only when set", nil, nil, nil, nil, "internal.segment.bytes", "absent", ""},
		{"internal", nil, nil, nil, map[string]string{"internal.segment.bytes": "9"}, "internal.segment.bytes", "internal.segment.bytes=9(1) internal.segment.bytes=9(1)", ""},
		{"always tiered", nil, nil, nil, nil, "remote.storage.enable", "remote.storage.enable=true(5) read-only", ""},
		{"auto", nil, nil, nil, nil, "default.replication.factor", "", "default.replication.factor=1(5) read-only default.replication.factor=1(5)"},
	}
	auto := func(name, value string) string {
		if name == "default.replication.factor" && value == "auto" {
			return "1"
		}
		return value
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := ResolveBroker(tt.static, tt.cluster, tt.node)
			if err != nil {
				t.Fatal(err)
			}
			if tt.topic != "" {
				if got := describeOne(DescribeTopic(tt.over, b), tt.config); got != tt.topic {
					t.Errorf("topic: got\n%s\nwant\n%s", got, tt.topic)
				}
			}
			if tt.broker != "" {
				if got := describeOne(DescribeBroker(b, auto), tt.config); got != tt.broker {
					t.Errorf("broker: got\n%s\nwant\n%s", got, tt.broker)
				}
			}
		})
	}
}

func TestDescribeBrokerDefaults(t *testing.T) {
	all := DescribeBrokerDefaults(map[string]string{"log.retention.ms": "5"})
	if len(all) != 1 || describeOne(all, "log.retention.ms") != "log.retention.ms=5(3) log.retention.ms=5(3)" {
		t.Errorf("got %+v", all)
	}
}

func TestDescribeGroup(t *testing.T) {
	b := mustBroker(t, map[string]string{"group.consumer.heartbeat.interval.ms": "6000"})
	all := DescribeGroup(map[string]string{"share.isolation.level": "read_committed"}, b)
	for name, want := range map[string]string{
		"consumer.heartbeat.interval.ms": "consumer.heartbeat.interval.ms=6000(4) group.consumer.heartbeat.interval.ms=6000(4) group.consumer.heartbeat.interval.ms=5000(5)",
		"share.isolation.level":          "share.isolation.level=read_committed(8) share.isolation.level=read_committed(8)",
	} {
		if got := describeOne(all, name); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if got := describeOne(DescribeClientMetrics(nil), "interval.ms"); got != "interval.ms=300000(5)" {
		t.Errorf("got %s", got)
	}
}

// TestDescribeCanonical: a value is shown as Kafka 4.4 shows it, whatever spelling it was set with.
func TestDescribeCanonical(t *testing.T) {
	for set, want := range map[string]string{
		"retention.ms= 7 ":                          "7",
		"retention.ms=+7":                           "7",
		"retention.ms=007":                          "7",
		"unclean.leader.election.enable=TRUE":       "true",
		"cleanup.policy=compact, delete":            "compact,delete",
		"min.cleanable.dirty.ratio=1":               "1.0",
		"min.cleanable.dirty.ratio=0.50":            "0.5",
		"local.retention.ms=-2":                     "-2",
		"message.timestamp.type=LogAppendTime":      "LogAppendTime",
		"leader.replication.throttled.replicas= * ": "*",
	} {
		name, value, _ := strings.Cut(set, "=")
		over := map[string]string{name: value}
		if _, err := ResolveTopic(over, Default()); err != nil {
			t.Errorf("%s: %v", set, err)
		}
		got := describeOne(DescribeTopic(over, Default()), name)
		if !strings.HasPrefix(got, name+"="+want+"(1) "+name+"="+want+"(1)") {
			t.Errorf("%s is shown as %s", set, got)
		}
	}
}

// TestClientMatches: what chooses clients is a known attribute and a pattern.
func TestClientMatches(t *testing.T) {
	for value, ok := range map[string]bool{
		"": true, "client_id=a.*": true, "client_software_name=x, client_source_port = 1": true, "x": false, "name=x": false, "client_id=(": false, "client_id": false,
	} {
		_, err := Replace(ClientMetricsScope, map[string]*string{"match": &value})
		if (err == nil) != ok {
			t.Errorf("match %q: %v", value, err)
		}
	}
}
