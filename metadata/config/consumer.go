// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// ConsumerGroup is what is in force for a consumer group.
type ConsumerGroup struct {
	Session, Interval  time.Duration
	AssignmentInterval time.Duration
	RegexRefresh       time.Duration
	MaxSize            int
	Assignors          []string
	Upgrade, Downgrade bool
}

// ConsumerGroup computes what is in force for a group with these overrides. One that the broker's bounds no longer allow counts as the
// bound, one that cannot be read as not there.
func (b *Broker) ConsumerGroup(overrides map[string]string) ConsumerGroup {
	c := ConsumerGroup{
		Session: b.Millis("group.consumer.session.timeout.ms"), Interval: b.Millis("group.consumer.heartbeat.interval.ms"),
		AssignmentInterval: b.Millis("group.consumer.assignment.interval.ms"), RegexRefresh: b.Millis("group.consumer.regex.refresh.interval.ms"),
		MaxSize: int(b.Int("group.consumer.max.size")), Assignors: b.List("group.consumer.assignors"),
	}
	switch b.Get("group.consumer.migration.policy") {
	case "bidirectional":
		c.Upgrade, c.Downgrade = true, true
	case "upgrade":
		c.Upgrade = true
	case "downgrade":
		c.Downgrade = true
	}
	if len(overrides) == 0 {
		return c
	}
	for _, o := range []struct {
		to   *time.Duration
		name string
	}{{&c.Session, "consumer.session.timeout.ms"}, {&c.Interval, "consumer.heartbeat.interval.ms"}, {&c.AssignmentInterval, "consumer.assignment.interval.ms"}} {
		v, there := overrides[o.name]
		if !there || mustFind(GroupScope, o.name).Validate(v) != nil {
			continue
		}
		ms := reader(func(string) string { return v }).long(o.name)
		for _, bound := range groupBounds {
			if bound.name == o.name {
				ms = max(b.Int(bound.low), min(ms, b.Int(bound.high)))
			}
		}
		*o.to = time.Duration(ms) * time.Millisecond
	}
	return c
}
