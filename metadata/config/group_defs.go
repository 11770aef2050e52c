// SPDX-License-Identifier: Apache-2.0

package config

func groupDefs() []*Def {
	return []*Def{
		group("consumer.session.timeout.ms", Int, "45000").min(1).from("group.consumer.session.timeout.ms").doc("Silence after which a member of a consumer group is put out."),
		group("consumer.heartbeat.interval.ms", Int, "5000").min(1).from("group.consumer.heartbeat.interval.ms").doc("How often members of a consumer group send heartbeats."),
		group("consumer.assignment.interval.ms", Int, "1000").min(0).from("group.consumer.assignment.interval.ms").doc("Shortest time between two assignments of a consumer group."),
		group("share.session.timeout.ms", Int, "45000").min(1).from("group.share.session.timeout.ms").doc("Silence after which a member of a share group is put out."),
		group("share.heartbeat.interval.ms", Int, "5000").min(1).from("group.share.heartbeat.interval.ms").doc("How often members of a share group send heartbeats."),
		group("share.assignment.interval.ms", Int, "1000").min(0).from("group.share.assignment.interval.ms").doc("Shortest time between two assignments of a share group."),
		group("share.record.lock.duration.ms", Int, "30000").min(1000).from("group.share.record.lock.duration.ms").doc("How long a delivered record is held for its member."),
		group("share.delivery.count.limit", Int, "5").min(2).from("group.share.delivery.count.limit").doc("Deliveries of a record before it is given up."),
		group("share.partition.max.record.locks", Int, "2000").min(100).from("group.share.partition.max.record.locks").doc("Records of a partition that may be delivered and not yet acknowledged."),
		group("share.auto.offset.reset", String, "latest").must(shareReset).doc("Where a share group starts on a partition it has not read: earliest, latest, or by_duration:PnDTnHnMnS."),
		group("share.isolation.level", String, "read_uncommitted").oneOf("read_committed", "read_uncommitted").doc("Whether a share group sees records of open and aborted transactions."),
		group("share.renew.acknowledge.enable", Boolean, "true").doc("Whether members of a share group may prolong the lock of a record."),
		group("errors.deadletterqueue.topic.name", String, "").doc("Topic that takes the records a share group gave up."),
		group("errors.deadletterqueue.copy.record.enable", Boolean, "false").doc("Whether the dead-letter topic gets the record itself or only where it was."),
		group("streams.session.timeout.ms", Int, "45000").min(1).from("group.streams.session.timeout.ms").doc("Silence after which a member of a streams group is put out."),
		group("streams.heartbeat.interval.ms", Int, "5000").min(1).from("group.streams.heartbeat.interval.ms").doc("How often members of a streams group send heartbeats."),
		group("streams.assignment.interval.ms", Int, "1000").min(0).from("group.streams.assignment.interval.ms").doc("Shortest time between two assignments of a streams group."),
		group("streams.initial.rebalance.delay.ms", Int, "3000").min(0).from("group.streams.initial.rebalance.delay.ms").doc("How long a new streams group waits for more members before its first assignment."),
		group("streams.num.standby.replicas", Int, "0").min(0).from("group.streams.num.standby.replicas").doc("Standby copies of each task of a streams group."),
		group("streams.assignor.name", String, "sticky").oneOf("sticky").from("group.streams.assignors").doc("How tasks of a streams group are given to members."),
		group("streams.rack.aware.assignment.tags", List, "").maybeEmpty().from("group.streams.rack.aware.assignment.tags").doc("Client tags over which standby copies are spread."),
	}
}

func clientMetricsDefs() []*Def {
	metric := func(name string, t Type, dflt string) *Def { return def(ClientMetricsScope, name, t, dflt) }
	return []*Def{
		metric("metrics", List, "").maybeEmpty().noEffect().doc("Prefixes of the client metrics to collect."),
		metric("interval.ms", Int, "300000").min(100).max(3_600_000).noEffect().doc("How often clients push their metrics."),
		metric("match", List, "").maybeEmpty().must(clientMatches).noEffect().doc("Which clients push, as name=pattern."),
	}
}
