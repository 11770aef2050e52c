// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Compression is what compression.type asks for. Values from Uncompressed on are the codec numbers of the batch format.
type Compression int8

const (
	CompressionProducer Compression = iota - 1 // keep what the producer chose
	CompressionNone
	CompressionGzip
	CompressionSnappy
	CompressionLz4
	CompressionZstd
)

var compressions = map[string]Compression{"producer": CompressionProducer, "uncompressed": CompressionNone, "gzip": CompressionGzip,
	"snappy": CompressionSnappy, "lz4": CompressionLz4, "zstd": CompressionZstd}

// Topic is a topic's configs in force: its overrides over the broker's values over the defaults, parsed (C4).
type Topic struct {
	CleanupDelete, CleanupCompact bool

	RetentionMillis int64 // -1: no limit
	RetentionBytes  int64 // negative: no limit
	// LocalRetentionMillis and LocalRetentionBytes have -2 replaced by the whole log's retention and never exceed it. -1: no limit.
	LocalRetentionMillis, LocalRetentionBytes int64

	SegmentBytes  int64 // internal.segment.bytes when set, else segment.bytes; not capped by the node's varve.segment.max.bytes
	SegmentMillis int64 // not capped by the node's varve.segment.max.ms

	MaxMessageBytes        int
	MaxDecompressedBytes   int
	MinInSyncReplicas      int  // cap it by the partition's replication factor
	LogAppendTime          bool // message.timestamp.type
	TimestampBeforeMillis  int64
	TimestampAfterMillis   int64
	Compression            Compression
	CompressionLevel       int // of that codec; 0 where it has none
	UncleanLeaderElection  bool
	DeleteRetentionMillis  int64
	MinCompactionLagMillis int64
	MaxCompactionLagMillis int64
	MinCleanableRatio      float64
}

// ResolveTopic computes a topic's configs in force. A nil broker means defaults only. Unknown names, bad values and
// contradictions are errors (ErrUnknown, ErrInvalid).
func ResolveTopic(overrides map[string]string, b *Broker) (*Topic, error) {
	for _, name := range sortedKeys(overrides) {
		d, err := find(TopicScope, name)
		if err != nil {
			return nil, err
		}
		if err := d.Validate(overrides[name]); err != nil {
			return nil, err
		}
	}
	if err := crossCheckTopic(overrides, b); err != nil {
		return nil, err
	}
	return buildTopic(overrides, b), nil
}

// ResolveStoredTopic is ResolveTopic for overrides that were accepted once. What this binary, or a changed broker config, makes
// of them must not take the topic away: entries it cannot use are left out and returned as errors beside a usable Topic.
func ResolveStoredTopic(overrides map[string]string, b *Broker) (*Topic, []error) {
	var errs []error
	usable := make(map[string]string, len(overrides))
	for _, name := range sortedKeys(overrides) {
		d, err := find(TopicScope, name)
		if err == nil {
			err = d.Validate(overrides[name])
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		usable[name] = overrides[name]
	}
	if err := crossCheckTopic(usable, b); err != nil {
		errs = append(errs, err)
	}
	return buildTopic(usable, b), errs
}

// effective is the value in force of a topic or group config: override, else the first synonym that the broker has set, else
// the default.
func effective(d *Def, overrides map[string]string, b *Broker) string {
	if v, ok := overrides[d.Name]; ok {
		return v
	}
	if b != nil {
		for _, s := range d.Synonyms {
			if v, ok := b.set(s.Name); ok {
				return scale(v, s.Factor)
			}
		}
	}
	return d.Default
}

// scale converts a synonym's value to the unit of the config that falls back to it. Negative values mean no limit in any unit.
func scale(value string, factor int64) string {
	if factor == 1 {
		return value
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	switch {
	case err != nil:
		return value
	case n < 0:
		return "-1"
	case n > math.MaxInt64/factor:
		return maxLong
	}
	return strconv.FormatInt(n*factor, 10)
}

// reader parses values that were validated before; a value that does not parse is a bug in a table.
type reader func(name string) string

func (r reader) long(name string) int64 {
	v := strings.TrimSpace(r(name))
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("config: %s=%q was not validated: %v", name, v, err))
	}
	return n
}

func (r reader) integer(name string) int  { return int(r.long(name)) }
func (r reader) boolean(name string) bool { return isTrue(r(name)) }

func (r reader) double(name string) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(r(name)), 64)
	if err != nil {
		panic(fmt.Sprintf("config: %s=%q was not validated: %v", name, r(name), err))
	}
	return f
}

func buildTopic(overrides map[string]string, b *Broker) *Topic {
	r := reader(func(name string) string { return effective(mustFind(TopicScope, name), overrides, b) })
	policies := splitList(r("cleanup.policy"))
	t := &Topic{
		CleanupDelete:          slices.Contains(policies, "delete"),
		CleanupCompact:         slices.Contains(policies, "compact"),
		RetentionMillis:        r.long("retention.ms"),
		RetentionBytes:         r.long("retention.bytes"),
		LocalRetentionMillis:   r.long("local.retention.ms"),
		LocalRetentionBytes:    r.long("local.retention.bytes"),
		SegmentBytes:           r.long("segment.bytes"),
		SegmentMillis:          r.long("segment.ms"),
		MaxMessageBytes:        r.integer("max.message.bytes"),
		MaxDecompressedBytes:   r.integer("max.decompressed.message.bytes"),
		MinInSyncReplicas:      r.integer("min.insync.replicas"),
		LogAppendTime:          r("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMillis:  r.long("message.timestamp.before.max.ms"),
		TimestampAfterMillis:   r.long("message.timestamp.after.max.ms"),
		Compression:            compressions[r("compression.type")],
		UncleanLeaderElection:  r.boolean("unclean.leader.election.enable"),
		DeleteRetentionMillis:  r.long("delete.retention.ms"),
		MinCompactionLagMillis: r.long("min.compaction.lag.ms"),
		MaxCompactionLagMillis: r.long("max.compaction.lag.ms"),
		MinCleanableRatio:      r.double("min.cleanable.dirty.ratio"),
	}
	if _, ok := overrides["internal.segment.bytes"]; ok {
		t.SegmentBytes = r.long("internal.segment.bytes")
	}
	switch t.Compression {
	case CompressionGzip:
		t.CompressionLevel = r.integer("compression.gzip.level")
	case CompressionLz4:
		t.CompressionLevel = r.integer("compression.lz4.level")
	case CompressionZstd:
		t.CompressionLevel = r.integer("compression.zstd.level")
	}
	t.LocalRetentionMillis = localLimit(t.LocalRetentionMillis, t.RetentionMillis)
	t.LocalRetentionBytes = localLimit(t.LocalRetentionBytes, t.RetentionBytes)
	return t
}

// localLimit is the limit of the hot copy: -2 stands for the whole log's, and the hot copy never outlives the log.
func localLimit(local, whole int64) int64 {
	switch {
	case whole < 0 && local < 0:
		return -1
	case whole < 0:
		return local
	case local < 0 || local > whole:
		return whole
	}
	return local
}

// crossCheckTopic refuses values that contradict each other. Local against whole retention is checked only where the topic sets
// both: the defaults here would contradict many an innocent retention.ms, and the smaller of the two is in force anyway.
func crossCheckTopic(overrides map[string]string, b *Broker) error {
	r := reader(func(name string) string { return effective(mustFind(TopicScope, name), overrides, b) })
	if least, most := r.long("min.compaction.lag.ms"), r.long("max.compaction.lag.ms"); least > most {
		return fmt.Errorf("%w: min.compaction.lag.ms=%d: must be at most max.compaction.lag.ms=%d", ErrInvalid, least, most)
	}
	for _, pair := range [...]struct{ local, whole string }{
		{"local.retention.ms", "retention.ms"}, {"local.retention.bytes", "retention.bytes"},
	} {
		_, a := overrides[pair.local]
		_, z := overrides[pair.whole]
		if !a || !z {
			continue
		}
		local, whole := r.long(pair.local), r.long(pair.whole)
		if whole >= 0 && local != -2 && (local == -1 || local > whole) {
			return fmt.Errorf("%w: %s=%d: must be at most %s=%d, or -2 for the same", ErrInvalid, pair.local, local, pair.whole, whole)
		}
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
