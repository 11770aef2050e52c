// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// groupBounds are the broker configs that bound a group's own values.
var groupBounds = []struct{ name, low, high string }{
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"share.assignment.interval.ms", "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"share.delivery.count.limit", "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"},
	{"share.partition.max.record.locks", "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"},
	{"streams.session.timeout.ms", "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"},
	{"streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"},
}

// CheckGroup refuses overrides of a group that are unknown, bad, or outside what the broker allows groups to choose.
func CheckGroup(overrides map[string]string, b *Broker) error {
	for _, name := range sortedKeys(overrides) {
		d, err := find(GroupScope, name)
		if err != nil {
			return err
		}
		if err := d.Validate(overrides[name]); err != nil {
			return err
		}
	}
	r := reader(func(name string) string { return overrides[name] })
	for _, bound := range groupBounds {
		if _, ok := overrides[bound.name]; !ok {
			continue
		}
		if v, low, high := r.long(bound.name), b.Int(bound.low), b.Int(bound.high); v < low || v > high {
			return fmt.Errorf("%w: %s=%d: must be from %d (%s) to %d (%s)", ErrInvalid, bound.name, v, low, bound.low, high, bound.high)
		}
	}
	return nil
}
