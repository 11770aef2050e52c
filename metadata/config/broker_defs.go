// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

// The broker configs that do something, or that clients and tools act upon.
func brokerDefs() []*Def {
	return slices.Concat(brokerIdentityDefs(), brokerLogDefs(), brokerRequestDefs(), brokerGroupDefs())
}

func brokerIdentityDefs() []*Def {
	return []*Def{
		unset("node.id", Int).min(0).doc("This node's number, unique in the cluster."),
		broker("broker.id", Int, "-1").min(-1).doc("Old name of node.id; reported for tools that still read it."),
		unset("broker.rack", String).doc("Where the node stands (rack, availability zone); replicas are spread over racks and consumers read from the nearest."),
		broker("listeners", List, "PLAINTEXT://:9092").maybeEmpty().doc("Addresses that the broker listens on, as name://host:port."),
		unset("advertised.listeners", List).maybeEmpty().doc("Addresses that clients are told to use, as name://host:port. Unset: as listeners."),
		broker("listener.security.protocol.map", String, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL").
			doc("Security protocol of each listener name."),
		unset("inter.broker.listener.name", String).doc("Name of the listener that brokers use among themselves."),
		unset("log.dirs", List).doc("Data directories of the hot log."),
		broker("process.roles", List, "broker").doc("What this process does."),
		broker("inter.broker.protocol.version", String, "4.4-IV0").doc("Fixed. Kafka has dropped it; user interfaces still read it to learn what a broker can do."),
		broker("authorizer.class.name", String, "").doc("Authorizer; empty: everybody may do everything."),
		broker("auto.create.topics.enable", Boolean, "true").doc("Whether a client that asks for a topic that does not exist creates it."),
		broker("delete.topic.enable", Boolean, "true").doc("Whether topics may be deleted."),
		broker("num.partitions", Int, "1").min(1).doc("Partitions of a topic that is created without saying how many."),
		broker("default.replication.factor", Int, "auto").min(1).max(32767).or("auto").
			doc("Replication factor of a topic that is created without saying one. auto: the smaller of 3 and the number of live nodes, and it follows that number."),
		broker("auto.leader.rebalance.enable", Boolean, "true").doc("Whether leadership goes back to the preferred replica by itself."),
		broker("leader.imbalance.check.interval.seconds", Long, "300").min(1).doc("How often leadership is checked against the preferred replicas."),
		broker("replica.lag.time.max.ms", Long, "30000").min(MinIntervalMillis).doc("How long a follower may be behind before it leaves the in-sync set."),
		broker("unclean.leader.election.enable", Boolean, "false").dynamic().doc("Default of the topic config of that name."),
		broker("min.insync.replicas", Int, defaultMinISR).min(1).dynamic().doc("Default of the topic config of that name."),
	}
}

// brokerLogDefs are the defaults of topic configs and what runs over logs.
func brokerLogDefs() []*Def {
	defaultOf := func(name string) string { return "Default of the topic config " + name + "." }
	return []*Def{
		broker("log.cleanup.policy", List, "delete").oneOf("compact", "delete").maybeEmpty().repeats().dynamic().doc(defaultOf("cleanup.policy")),
		unset("log.retention.ms", Long).min(-1).must(notZero).dynamic().doc(defaultOf("retention.ms") + " Goes before log.retention.minutes and log.retention.hours."),
		unset("log.retention.minutes", Int).must(notZero).doc(defaultOf("retention.ms") + " In minutes; goes before log.retention.hours."),
		broker("log.retention.hours", Int, "168").must(notZero).doc(defaultOf("retention.ms") + " In hours."),
		broker("log.retention.bytes", Long, "-1").dynamic().doc(defaultOf("retention.bytes")),
		broker("log.local.retention.ms", Long, defaultLocalMillis).min(-2).dynamic().doc(defaultOf("local.retention.ms")),
		broker("log.local.retention.bytes", Long, defaultLocalBytes).min(-2).dynamic().doc(defaultOf("local.retention.bytes")),
		broker("log.segment.bytes", Int, defaultSegmentBytes).min(MinSegmentBytes).dynamic().doc(defaultOf("segment.bytes")),
		unset("log.roll.ms", Long).min(1).dynamic().doc(defaultOf("segment.ms") + " Goes before log.roll.hours."),
		broker("log.roll.hours", Int, defaultSegmentHours).min(1).doc(defaultOf("segment.ms") + " In hours."),
		unset("log.roll.jitter.ms", Long).min(0).dynamic().noEffect().doc(defaultOf("segment.jitter.ms") + " Goes before log.roll.jitter.hours."),
		broker("log.roll.jitter.hours", Int, "0").min(0).noEffect().doc(defaultOf("segment.jitter.ms") + " In hours."),
		broker("log.retention.check.interval.ms", Long, "300000").min(1).doc("How often retention looks for segments to delete."),
		broker("log.message.timestamp.type", String, "CreateTime").oneOf("CreateTime", "LogAppendTime").dynamic().doc(defaultOf("message.timestamp.type")),
		broker("log.message.timestamp.before.max.ms", Long, maxLong).min(0).dynamic().doc(defaultOf("message.timestamp.before.max.ms")),
		broker("log.message.timestamp.after.max.ms", Long, "3600000").min(0).dynamic().doc(defaultOf("message.timestamp.after.max.ms")),
		broker("message.max.bytes", Int, "1048588").min(0).dynamic().doc(defaultOf("max.message.bytes")),
		broker("max.decompressed.message.bytes", Int, maxDecompressedDefault).min(1).max(2147483639).dynamic().doc(defaultOf("max.decompressed.message.bytes")),
		broker("compression.type", String, "producer").oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer").dynamic().doc(defaultOf("compression.type")),
		broker("compression.gzip.level", Int, "-1").min(1).max(9).or("-1").dynamic().doc(defaultOf("compression.gzip.level")),
		broker("compression.lz4.level", Int, "9").min(1).max(17).dynamic().doc(defaultOf("compression.lz4.level")),
		broker("compression.zstd.level", Int, "3").min(-131072).max(22).dynamic().doc(defaultOf("compression.zstd.level")),
		broker("log.cleaner.delete.retention.ms", Long, "86400000").min(0).dynamic().doc(defaultOf("delete.retention.ms")),
		broker("log.cleaner.min.compaction.lag.ms", Long, "0").min(0).dynamic().doc(defaultOf("min.compaction.lag.ms")),
		broker("log.cleaner.max.compaction.lag.ms", Long, maxLong).min(1).dynamic().doc(defaultOf("max.compaction.lag.ms")),
		broker("log.cleaner.min.cleanable.ratio", Double, "0.5").min(0).max(1).dynamic().doc(defaultOf("min.cleanable.dirty.ratio")),
		broker("producer.id.expiration.ms", Int, "86400000").min(1).dynamic().doc("How long a producer id may be idle before its sequence numbers are forgotten; never while it has a transaction open."),
		broker("transaction.max.timeout.ms", Int, "900000").min(1).doc("The longest transaction.timeout.ms that a producer may ask for."),
		broker("transactional.id.expiration.ms", Int, "604800000").min(1).doc("How long a transactional id may be unused, with no transaction open, before it is forgotten: its next producer gets a new producer id."),
	}
}

func brokerRequestDefs() []*Def {
	return []*Def{
		broker("socket.request.max.bytes", Int, "104857600").min(1).doc("Largest request accepted; a connection that announces more is closed."),
		broker("connections.max.idle.ms", Long, "600000").min(-1).doc("How long a connection may be silent before it is closed. -1: for ever."),
		broker("max.connections", Int, maxInt).min(1).dynamic().doc("Connections that the node serves at once; more are closed at once."),
		broker("max.connections.per.ip", Int, maxInt).min(0).dynamic().doc("Connections from one address that the node serves at once."),
		broker("queued.max.requests", Int, "500").min(1).doc("Requests that may wait to be served before connections are no longer read."),
		broker("fetch.max.bytes", Int, "57671680").min(1024).doc("Most bytes that one fetch answers, whatever the client asks for; a first batch that is larger still goes out whole."),
		broker("max.incremental.fetch.session.cache.slots", Int, "1000").min(0).doc("Incremental fetch sessions that the node remembers."),
		broker("max.request.partition.size.limit", Int, "2000").min(1).doc("Most partitions that one DescribeTopicPartitions answers."),
		broker("quota.window.num", Int, "11").min(1).max(3600).doc("Windows that the rates of client quotas are measured over. A client that was idle may use all but one of them at once."),
		broker("quota.window.size.seconds", Int, "1").min(1).max(3600).doc("Length of each of these windows."),
		broker("controller.quota.window.num", Int, "11").min(1).max(3600).doc("Windows' worth of controller_mutation_rate that a client may use at once."),
		broker("controller.quota.window.size.seconds", Int, "1").min(1).max(3600).doc("Length of each of these windows."),
		broker("request.timeout.ms", Int, "30000").min(1).doc("How long the broker works on a request that carries no time limit of its own."),
	}
}

func brokerGroupDefs() []*Def {
	return []*Def{
		broker("group.initial.rebalance.delay.ms", Int, "3000").min(0).doc("How long an empty group waits for further members before its first generation."),
		broker("group.min.session.timeout.ms", Int, "6000").min(0).doc("Shortest session timeout that a member of a classic group may ask for."),
		broker("group.max.session.timeout.ms", Int, "1800000").min(0).doc("Longest session timeout that a member of a classic group may ask for."),
		broker("group.max.size", Int, maxInt).min(1).doc("Most members of a classic group."),
		broker("offset.metadata.max.bytes", Int, "4096").min(0).doc("Longest metadata string of a committed offset."),
		broker("offsets.retention.minutes", Int, "10080").min(1).doc("How long committed offsets are kept after their group became empty, or after the commit where no group uses them."),
		broker("offsets.retention.check.interval.ms", Long, "600000").min(1).doc("How often a group coordinator looks for offsets that have expired and for empty groups without offsets."),
		broker("offsets.topic.num.partitions", Int, "50").min(1).max(10000).doc("Coordinator shards that groups and transactional ids are spread over. The first start of a cluster fixes it."),
	}
}
