// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTablesAreSound checks what every row must have, whoever adds one.
func TestTablesAreSound(t *testing.T) {
	for s := range scopes {
		for _, d := range All(s) {
			if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") {
				t.Errorf("%s config %s: documentation %q must be there and end with a full stop", s, d.Name, d.Doc)
			}
			if !d.Null {
				if err := d.Validate(d.Default); err != nil {
					t.Errorf("%s config %s: its own default is refused: %v", s, d.Name, err)
				}
			}
			if d.Sensitive != (d.Type == Password) {
				t.Errorf("%s config %s: sensitive=%v of type %s", s, d.Name, d.Sensitive, d.Type)
			}
			for _, syn := range d.Synonyms {
				if _, ok := Lookup(BrokerScope, syn.Name); !ok {
					t.Errorf("%s config %s falls back to %q, which is no broker config", s, d.Name, syn.Name)
				}
				if syn.Factor < 1 {
					t.Errorf("%s config %s: factor %d of %s", s, d.Name, syn.Factor, syn.Name)
				}
			}
			if strings.HasPrefix(d.Name, "varve.") && d.Effect != Matters {
				t.Errorf("%s is ours and has no effect", d.Name)
			}
		}
	}
}

// TestTopicDefaultsAgreeWithBrokerDefaults is C3: setting a broker config to its own default changes no topic.
func TestTopicDefaultsAgreeWithBrokerDefaults(t *testing.T) {
	for _, s := range []Scope{TopicScope, GroupScope} {
		for _, d := range All(s) {
			for _, syn := range d.Synonyms {
				b := mustFind(BrokerScope, syn.Name)
				if b.Null || d.Name == "streams.assignor.name" {
					continue
				}
				broker := mustBroker(t, map[string]string{syn.Name: b.Default})
				if got := effective(d, nil, broker); got != d.Default {
					t.Errorf("%s is %s by default, but %s with %s=%s", d.Name, d.Default, got, syn.Name, b.Default)
				}
			}
		}
	}
}

func mustBroker(t *testing.T, static map[string]string) *Broker {
	t.Helper()
	b, err := ResolveBroker(static, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDefaults pins what interface.md and Kafka 4.4 promise.
func TestDefaults(t *testing.T) {
	topicWant := map[string]string{
		"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1", "segment.bytes": "67108864", "segment.ms": "3600000",
		"local.retention.ms": "600000", "local.retention.bytes": "268435456", "min.insync.replicas": "2", "max.message.bytes": "1048588",
		"remote.storage.enable": "true", "message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "3600000",
		"message.timestamp.before.max.ms": maxLong, "compression.type": "producer", "delete.retention.ms": "86400000",
		"min.compaction.lag.ms": "0", "max.compaction.lag.ms": maxLong, "min.cleanable.dirty.ratio": "0.5", "segment.jitter.ms": "0",
		"compression.gzip.level": "-1", "compression.lz4.level": "9", "compression.zstd.level": "3", "unclean.leader.election.enable": "false",
		"remote.copy.lag.ms": "0", "segment.index.bytes": "10485760", "index.interval.bytes": "4096", "flush.messages": maxLong,
		"flush.ms": maxLong, "file.delete.delay.ms": "60000", "preallocate": "false", "leader.replication.throttled.replicas": "",
	}
	for name, want := range topicWant {
		if d, ok := Lookup(TopicScope, name); !ok || d.Default != want {
			t.Errorf("topic config %s: default %v, want %s", name, d, want)
		}
	}
	b := Default()
	brokerWant := map[string]string{
		"log.retention.hours": "168", "log.retention.check.interval.ms": "300000", "num.partitions": "1", "auto.create.topics.enable": "true",
		"delete.topic.enable": "true", "message.max.bytes": "1048588", "socket.request.max.bytes": "104857600", "connections.max.idle.ms": "600000",
		"fetch.max.bytes": "57671680", "max.incremental.fetch.session.cache.slots": "1000", "max.request.partition.size.limit": "2000",
		"queued.max.requests": "500", "num.network.threads": "3", "num.io.threads": "8", "offsets.topic.num.partitions": "50",
		"offsets.retention.minutes": "10080", "group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000",
		"group.initial.rebalance.delay.ms": "3000", "group.consumer.assignors": "uniform,range", "transaction.max.timeout.ms": "900000",
		"transaction.state.log.min.isr": "2", "producer.id.expiration.ms": "86400000", "quota.window.num": "11", "ssl.client.auth": "none",
		"allow.everyone.if.no.acl.found": "false", "request.timeout.ms": "30000", "default.replication.factor": "auto", "replica.lag.time.max.ms": "30000",
		"varve.segment.max.ms": "3600000", "varve.segment.max.bytes": "134217728", "varve.hot.bytes": "0", "varve.manifest.etcd.entries": "500000",
		"varve.broker.lease.ms": "10000", "varve.ready.timeout.ms": "0", "log.retention.ms": "", "log.retention.minutes": "",
	}
	for name, want := range brokerWant {
		if got := b.Get(name); got != want {
			t.Errorf("broker config %s: default %q, want %q", name, got, want)
		}
	}
	if b.ReplicationFactor(1) != 1 || b.ReplicationFactor(2) != 2 || b.ReplicationFactor(5) != 3 || b.ReplicationFactor(0) != 1 {
		t.Error("auto is min(3, live nodes)")
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		scope Scope
		name  string
		good  []string
		bad   []string
		says  string // in every refusal
	}{
		{TopicScope, "retention.ms", []string{"-1", "0", maxLong, " 5 "}, []string{"-2", "", "1h", "9223372036854775808", "1.5"}, "a whole number of at least -1"},
		{TopicScope, "retention.bytes", []string{"-9999", "0"}, []string{"x"}, "a whole number of type long"},
		{TopicScope, "segment.bytes", []string{"1048576", maxInt}, []string{"1048575", "0", "2147483648"}, "at least 1048576"},
		{TopicScope, "internal.segment.bytes", []string{"1", "1000"}, []string{"0"}, "at least 1"},
		{TopicScope, "cleanup.policy", []string{"compact", "delete", "compact,delete", "delete, compact", "", "compact,compact"}, []string{"keep", "compact,,delete", ","}, "of compact, delete, or empty"},
		{TopicScope, "compression.type", []string{"producer", "uncompressed", "zstd"}, []string{"none", "ZSTD", ""}, "one of uncompressed, zstd"},
		{TopicScope, "compression.gzip.level", []string{"-1", "1", "9"}, []string{"0", "10", "-2"}, "from 1 to 9, or -1"},
		{TopicScope, "compression.zstd.level", []string{"-131072", "22"}, []string{"23"}, "from -131072 to 22"},
		{TopicScope, "min.cleanable.dirty.ratio", []string{"0", "1", "0.25"}, []string{"1.01", "-0.1", "NaN", "half"}, "a number from 0 to 1"},
		{TopicScope, "preallocate", []string{"true", "FALSE"}, []string{"yes", "1", ""}, "true or false"},
		{TopicScope, "remote.storage.enable", []string{"true"}, []string{"false"}, "remote.storage.enable"},
		{TopicScope, "leader.replication.throttled.replicas", []string{"", "*", "0:1,1:2"}, []string{"0", "0:1,0:1", "a:b", "0:-1"}, "leader.replication.throttled.replicas"},
		{TopicScope, "max.decompressed.message.bytes", []string{"2147483639"}, []string{"2147483640", "0"}, "from 1 to 2147483639"},
		{BrokerScope, "log.retention.ms", []string{"-1", "1"}, []string{"0", "-2"}, "log.retention.ms"},
		{BrokerScope, "default.replication.factor", []string{"auto", "1", "3"}, []string{"0", "-1", "Auto"}, "or auto"},
		{BrokerScope, "varve.segment.max.ms", []string{"100"}, []string{"99"}, "at least 100"},
		{BrokerScope, "varve.ready.timeout.ms", []string{"0", "100"}, []string{"50"}, "or 0"},
		{GroupScope, "share.auto.offset.reset", []string{"earliest", "latest", "by_duration:PT1H"}, []string{"none", "by_duration:1h"}, "share.auto.offset.reset"},
	}
	for _, tt := range tests {
		d, ok := Lookup(tt.scope, tt.name)
		if !ok {
			t.Errorf("no %s config %s", tt.scope, tt.name)
			continue
		}
		for _, v := range tt.good {
			if err := d.Validate(v); err != nil {
				t.Errorf("%s=%q refused: %v", tt.name, v, err)
			}
		}
		for _, v := range tt.bad {
			err := d.Validate(v)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.name) || !strings.Contains(err.Error(), strconv.Quote(v)) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s=%q: got %v, want ErrInvalid naming key, value and %q", tt.name, v, err, tt.says)
			}
		}
	}
}

// TestSecretsStayOutOfErrors: an error may be logged.
func TestSecretsStayOutOfErrors(t *testing.T) {
	d, _ := Lookup(BrokerScope, "ssl.keystore.password")
	if got := d.shown("hunter2"); strings.Contains(got, "hunter2") {
		t.Errorf("shown as %s", got)
	}
	b, err := ResolveBroker(map[string]string{"ssl.keystore.password": "hunter2"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range DescribeBroker(b, nil) {
		if e.Name == "ssl.keystore.password" && (e.Value != nil || !e.Sensitive || len(e.Synonyms) != 1 || e.Synonyms[0].Value != nil) {
			t.Errorf("described as %+v", e)
		}
	}
}

func TestRemovedAndUnknownNamesAreRefused(t *testing.T) {
	for _, name := range []string{"message.format.version", "message.timestamp.difference.max.ms", "no.such.config", "", "Retention.ms"} {
		_, err := ResolveTopic(map[string]string{name: "1"}, nil)
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%q: got %v, want ErrUnknown naming it", name, err)
		}
	}
	if _, err := ResolveBroker(map[string]string{"retention.ms": "1"}, nil, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("a topic config is no broker config: %v", err)
	}
}

func TestResolveTopicInherits(t *testing.T) {
	tests := []struct {
		name                        string
		static, cluster, node, over map[string]string
		get                         func(*Topic) any
		want                        any
	}{
		{"default", nil, nil, nil, nil, func(c *Topic) any { return c.RetentionMillis }, int64(604800000)},
		{"hours", map[string]string{"log.retention.hours": "2"}, nil, nil, nil, func(c *Topic) any { return c.RetentionMillis }, int64(7200000)},
		{"minutes before hours", map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}, nil, nil, nil, func(c *Topic) any { return c.RetentionMillis }, int64(180000)},
		{"ms before all", map[string]string{"log.retention.ms": "5", "log.retention.minutes": "3"}, nil, nil, nil, func(c *Topic) any { return c.RetentionMillis }, int64(5)},
		{"for ever in minutes", map[string]string{"log.retention.minutes": "-1"}, nil, nil, nil, func(c *Topic) any { return c.RetentionMillis }, int64(-1)},
		{"dynamic default before static", map[string]string{"log.retention.ms": "5"}, map[string]string{"log.retention.ms": "6"}, nil, nil, func(c *Topic) any { return c.RetentionMillis }, int64(6)},
		{"node before dynamic default", nil, map[string]string{"log.retention.ms": "6"}, map[string]string{"log.retention.ms": "7"}, nil, func(c *Topic) any { return c.RetentionMillis }, int64(7)},
		{"topic before all", nil, nil, map[string]string{"log.retention.ms": "7"}, map[string]string{"retention.ms": "8"}, func(c *Topic) any { return c.RetentionMillis }, int64(8)},
		{"roll hours", map[string]string{"log.roll.hours": "24"}, nil, nil, nil, func(c *Topic) any { return c.SegmentMillis }, int64(86400000)},
		{"huge hours do not wrap", map[string]string{"log.roll.hours": maxInt}, nil, nil, nil, func(c *Topic) any { return c.SegmentMillis }, int64(2147483647 * 3600000)},
		{"local follows a shorter whole", nil, nil, nil, map[string]string{"retention.ms": "1000"}, func(c *Topic) any { return c.LocalRetentionMillis }, int64(1000)},
		{"local -2 is the whole", nil, nil, nil, map[string]string{"local.retention.ms": "-2"}, func(c *Topic) any { return c.LocalRetentionMillis }, int64(604800000)},
		{"local -2 of endless is endless", nil, nil, nil, map[string]string{"local.retention.ms": "-2", "retention.ms": "-1"}, func(c *Topic) any { return c.LocalRetentionMillis }, int64(-1)},
		{"local 0", nil, nil, nil, map[string]string{"local.retention.ms": "0"}, func(c *Topic) any { return c.LocalRetentionMillis }, int64(0)},
		{"local bytes without a whole", nil, nil, nil, nil, func(c *Topic) any { return c.LocalRetentionBytes }, int64(268435456)},
		{"internal segment bytes win", nil, nil, nil, map[string]string{"internal.segment.bytes": "1000", "segment.bytes": "2000000"}, func(c *Topic) any { return c.SegmentBytes }, int64(1000)},
		{"codec and its level", nil, nil, nil, map[string]string{"compression.type": "lz4", "compression.lz4.level": "3"}, func(c *Topic) any { return [2]int{int(c.Compression), c.CompressionLevel} }, [2]int{3, 3}},
		{"uncompressed", nil, nil, nil, map[string]string{"compression.type": "uncompressed"}, func(c *Topic) any { return [2]int{int(c.Compression), c.CompressionLevel} }, [2]int{0, 0}},
		{"both policies", nil, nil, nil, map[string]string{"cleanup.policy": "delete,compact"}, func(c *Topic) any { return [2]bool{c.CleanupDelete, c.CleanupCompact} }, [2]bool{true, true}},
		{"neither policy", nil, nil, nil, map[string]string{"cleanup.policy": ""}, func(c *Topic) any { return [2]bool{c.CleanupDelete, c.CleanupCompact} }, [2]bool{false, false}},
		{"log append time", nil, nil, nil, map[string]string{"message.timestamp.type": "LogAppendTime"}, func(c *Topic) any { return c.LogAppendTime }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := ResolveBroker(tt.static, tt.cluster, tt.node)
			if err != nil {
				t.Fatal(err)
			}
			c, err := ResolveTopic(tt.over, b)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.get(c); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	tests := []struct {
		over map[string]string
		says string
	}{
		{map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, "at most max.compaction.lag.ms=9"},
		{map[string]string{"local.retention.ms": "10", "retention.ms": "9"}, "at most retention.ms=9"},
		{map[string]string{"local.retention.ms": "-1", "retention.ms": "9"}, "at most retention.ms=9"},
		{map[string]string{"local.retention.bytes": "10", "retention.bytes": "9"}, "at most retention.bytes=9"},
	}
	for _, tt := range tests {
		_, err := ResolveTopic(tt.over, nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: got %v, want ErrInvalid saying %q", tt.over, err, tt.says)
		}
	}
	for _, good := range []map[string]string{
		{"local.retention.ms": "-1", "retention.ms": "-1"}, {"local.retention.ms": "9", "retention.ms": "9"}, {"retention.ms": "1"},
		{"local.retention.bytes": "10", "retention.bytes": "-1"}, {"local.retention.ms": "-2", "retention.ms": "5"},
	} {
		if _, err := ResolveTopic(good, nil); err != nil {
			t.Errorf("%v refused: %v", good, err)
		}
	}
	lag := mustBroker(t, map[string]string{"log.cleaner.min.compaction.lag.ms": "100"})
	if _, err := ResolveTopic(map[string]string{"max.compaction.lag.ms": "50"}, lag); !errors.Is(err, ErrInvalid) {
		t.Errorf("an override that contradicts what the broker sets: %v", err)
	}
	if _, err := ResolveBroker(map[string]string{"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, nil, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("minimum above maximum: %v", err)
	}
}

// TestStoredConfigsAlwaysResolve: what was accepted once never takes a topic or a broker away.
func TestStoredConfigsAlwaysResolve(t *testing.T) {
	c, errs := ResolveStoredTopic(map[string]string{"from.a.newer.release": "1", "segment.bytes": "1", "retention.ms": "77", "min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, nil)
	if c.RetentionMillis != 77 || c.SegmentBytes != 64<<20 || len(errs) != 3 {
		t.Errorf("got %+v and %v", c, errs)
	}
	b, errs, err := ResolveStoredBroker(map[string]string{"num.partitions": "5"}, map[string]string{"gone": "1", "log.retention.ms": "70"}, map[string]string{"message.max.bytes": "-5"})
	if err != nil || len(errs) != 2 || b.NumPartitions != 5 || b.Get("log.retention.ms") != "70" {
		t.Errorf("got %v, %v", errs, err)
	}
	if _, _, err := ResolveStoredBroker(map[string]string{"nope": "1"}, nil, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("what the operator typed is not forgiven: %v", err)
	}
}

func TestBrokerTypedFields(t *testing.T) {
	b := mustBroker(t, map[string]string{"node.id": "7", "broker.rack": "r1", "num.partitions": "4", "default.replication.factor": "2", "varve.gc.grace.ms": "100",
		"connections.max.idle.ms": "-1", "varve.hot.bytes": "2147483648"})
	if b.NodeID != 7 || b.Rack != "r1" || b.NumPartitions != 4 || b.ReplicationFactor(9) != 2 || b.Varve.GCGrace != 100*time.Millisecond ||
		b.ConnectionsMaxIdle >= 0 || b.Varve.HotBytes != 2<<30 || b.Varve.ReadyTimeout != 0 || b.Varve.BrokerLease != 10*time.Second {
		t.Errorf("got %+v", b)
	}
	if Default().NodeID != -1 {
		t.Error("no node id is -1")
	}
	if got := b.List("group.consumer.assignors"); len(got) != 2 || got[1] != "range" {
		t.Errorf("list: %v", got)
	}
}

// TestOnlyTrueSaysSo: a switch that cannot be switched off does not name false among what is allowed.
func TestOnlyTrueSaysSo(t *testing.T) {
	d, _ := Lookup(TopicScope, "remote.storage.enable")
	if err := d.Validate("false"); err == nil || !strings.HasSuffix(err.Error(), "must be true") {
		t.Errorf("%v", err)
	}
	if err := d.Validate("TRUE"); err != nil {
		t.Error(err)
	}
}
