// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"testing"
	"time"
)

// TestConsumerGroup: a group's own values go before the broker's, inside the broker's bounds.
func TestConsumerGroup(t *testing.T) {
	b, err := ResolveBroker(map[string]string{
		"group.consumer.max.session.timeout.ms": "50000", "group.consumer.migration.policy": "upgrade", "group.consumer.assignors": "range", "group.consumer.max.size": "7",
	}, map[string]string{"group.consumer.assignment.interval.ms": "2000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := ConsumerGroup{
		Session: 45 * time.Second, Interval: 5 * time.Second, AssignmentInterval: 2 * time.Second, RegexRefresh: 10 * time.Minute, MaxSize: 7, Assignors: []string{"range"}, Upgrade: true,
	}
	if got := b.ConsumerGroup(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	want.Session, want.Interval, want.AssignmentInterval = 50*time.Second, 6*time.Second, 0
	got := b.ConsumerGroup(map[string]string{"consumer.session.timeout.ms": "59000", "consumer.heartbeat.interval.ms": "6000", "consumer.assignment.interval.ms": "0"})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, value := range map[string]string{"group.consumer.assignors": "uniform,mine", "group.consumer.migration.policy": "sometimes"} {
		if _, err := ResolveBroker(map[string]string{name: value}, nil, nil); err == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
	for policy, want := range map[string][2]bool{"bidirectional": {true, true}, "downgrade": {false, true}, "disabled": {}} {
		b, err := ResolveBroker(map[string]string{"group.consumer.migration.policy": policy}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c := b.ConsumerGroup(nil); [2]bool{c.Upgrade, c.Downgrade} != want {
			t.Errorf("%s: %v", policy, c)
		}
	}
}
