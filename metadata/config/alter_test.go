// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func ptr(s string) *string { return &s }

func TestApplyIncremental(t *testing.T) {
	tests := []struct {
		name    string
		scope   Scope
		current map[string]string
		ops     []Op
		want    map[string]string
		err     error
	}{
		{"set", TopicScope, nil, []Op{{"retention.ms", OpSet, ptr("5")}}, map[string]string{"retention.ms": "5"}, nil},
		{"set again", TopicScope, map[string]string{"retention.ms": "5"}, []Op{{"retention.ms", OpSet, ptr("6")}}, map[string]string{"retention.ms": "6"}, nil},
		{"delete", TopicScope, map[string]string{"retention.ms": "5", "preallocate": "true"}, []Op{{"retention.ms", OpDelete, nil}}, map[string]string{"preallocate": "true"}, nil},
		{"delete what is not set", TopicScope, nil, []Op{{"retention.ms", OpDelete, nil}}, map[string]string{}, nil},
		{"delete ignores its value", TopicScope, map[string]string{"retention.ms": "5"}, []Op{{"retention.ms", OpDelete, ptr("x")}}, map[string]string{}, nil},
		{"delete what an older release knew", TopicScope, map[string]string{"old": "5"}, []Op{{"old", OpDelete, nil}}, map[string]string{}, nil},
		{"append to the default", TopicScope, nil, []Op{{"cleanup.policy", OpAppend, ptr("compact")}}, map[string]string{"cleanup.policy": "delete,compact"}, nil},
		{"append what is there", TopicScope, nil, []Op{{"cleanup.policy", OpAppend, ptr("delete")}}, map[string]string{"cleanup.policy": "delete"}, nil},
		{"append to an empty list", TopicScope, map[string]string{"cleanup.policy": ""}, []Op{{"cleanup.policy", OpAppend, ptr("compact")}}, map[string]string{"cleanup.policy": "compact"}, nil},
		{"subtract", TopicScope, map[string]string{"cleanup.policy": "delete,compact"}, []Op{{"cleanup.policy", OpSubtract, ptr("delete")}}, map[string]string{"cleanup.policy": "compact"}, nil},
		{"subtract the last", TopicScope, nil, []Op{{"cleanup.policy", OpSubtract, ptr("delete")}}, map[string]string{"cleanup.policy": ""}, nil},
		{"throttle", TopicScope, map[string]string{"leader.replication.throttled.replicas": "0:1"}, []Op{{"leader.replication.throttled.replicas", OpAppend, ptr("1:1")}}, map[string]string{"leader.replication.throttled.replicas": "0:1,1:1"}, nil},
		{"append to a number", TopicScope, nil, []Op{{"retention.ms", OpAppend, ptr("5")}}, nil, ErrInvalid},
		{"append what is not allowed", TopicScope, nil, []Op{{"cleanup.policy", OpAppend, ptr("keep")}}, nil, ErrInvalid},
		{"null to set", TopicScope, nil, []Op{{"retention.ms", OpSet, nil}}, nil, ErrBadOperation},
		{"named twice", TopicScope, nil, []Op{{"retention.ms", OpSet, ptr("5")}, {"retention.ms", OpDelete, nil}}, nil, ErrBadOperation},
		{"unknown operation", TopicScope, nil, []Op{{"retention.ms", 7, ptr("5")}}, nil, ErrBadOperation},
		{"unknown name", TopicScope, nil, []Op{{"nope", OpSet, ptr("5")}}, nil, ErrUnknown},
		{"delete an unknown name", TopicScope, map[string]string{"flush.ms": "1"}, []Op{{"nope", OpDelete, nil}}, map[string]string{"flush.ms": "1"}, nil},
		{"bad value", TopicScope, nil, []Op{{"retention.ms", OpSet, ptr("-2")}}, nil, ErrInvalid},
		{"too long", TopicScope, nil, []Op{{"leader.replication.throttled.replicas", OpSet, ptr(longList())}}, nil, ErrInvalid},
		{"all or nothing", TopicScope, nil, []Op{{"retention.ms", OpSet, ptr("5")}, {"segment.ms", OpSet, ptr("0")}}, nil, ErrInvalid},
		{"read-only broker config", BrokerScope, nil, []Op{{"num.partitions", OpSet, ptr("5")}}, nil, ErrReadOnly},
		{"dynamic broker config", BrokerScope, nil, []Op{{"message.max.bytes", OpSet, ptr("5")}}, map[string]string{"message.max.bytes": "5"}, nil},
		{"per broker", BrokerScope, nil, []Op{{"ssl.keystore.location", OpSet, ptr("/f")}}, map[string]string{"ssl.keystore.location": "/f"}, nil},
		{"per broker for all", BrokerDefaultScope, nil, []Op{{"ssl.keystore.location", OpSet, ptr("/f")}}, nil, ErrReadOnly},
		{"for all", BrokerDefaultScope, nil, []Op{{"log.retention.ms", OpSet, ptr("5")}}, map[string]string{"log.retention.ms": "5"}, nil},
		{"group", GroupScope, nil, []Op{{"consumer.session.timeout.ms", OpSet, ptr("46000")}}, map[string]string{"consumer.session.timeout.ms": "46000"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := maps.Clone(tt.current)
			got, err := ApplyIncremental(tt.scope, tt.current, tt.ops)
			if !errors.Is(err, tt.err) || (tt.err == nil) != (err == nil) || !maps.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v, %v", got, err, tt.want, tt.err)
			}
			if !maps.Equal(before, tt.current) {
				t.Errorf("current was changed to %v", tt.current)
			}
		})
	}
}

func longList() string {
	var b strings.Builder
	b.WriteString("0:0")
	for i := 1; b.Len() <= maxValueBytes; i++ {
		b.WriteString(",1:" + strings.Repeat("0", i%9) + "1" + strings.Repeat("0", i%3))
		if i > 20 { // beyond that the elements would repeat
			break
		}
	}
	if b.Len() <= maxValueBytes {
		b.WriteString(",2:" + strings.Repeat("0", maxValueBytes) + "1")
	}
	return b.String()
}

func TestReplace(t *testing.T) {
	got, err := Replace(TopicScope, map[string]*string{"retention.ms": ptr("5"), "cleanup.policy": ptr("compact")})
	if err != nil || !maps.Equal(got, map[string]string{"retention.ms": "5", "cleanup.policy": "compact"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := Replace(TopicScope, map[string]*string{"retention.ms": nil}); !errors.Is(err, ErrInvalid) {
		t.Errorf("null: %v", err)
	}
	if _, err := Replace(TopicScope, map[string]*string{"nope": ptr("1")}); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := Replace(BrokerScope, map[string]*string{"num.partitions": ptr("4")}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

func TestCheckGroup(t *testing.T) {
	b := Default()
	if err := CheckGroup(map[string]string{"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"}, b); err != nil {
		t.Error(err)
	}
	for name, value := range map[string]string{"consumer.session.timeout.ms": "44999", "share.delivery.count.limit": "11", "share.isolation.level": "x"} {
		if err := CheckGroup(map[string]string{name: value}, b); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: got %v", name, value, err)
		}
	}
	if err := CheckGroup(map[string]string{"nope": "1"}, b); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	for _, bound := range groupBounds {
		if d, _ := Lookup(GroupScope, bound.name); d == nil || d.Validate(b.Get(bound.low)) != nil || d.Validate(b.Get(bound.high)) != nil {
			t.Errorf("the bounds of %s are not values it allows", bound.name)
		}
	}
}
