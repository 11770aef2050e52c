// SPDX-License-Identifier: Apache-2.0

package config

func topicDefs() []*Def {
	return append(topicLogDefs(), append(topicFormatDefs(), topicAcceptedDefs()...)...)
}

// topicLogDefs are the topic configs that decide how long data stays and where.
func topicLogDefs() []*Def {
	return []*Def{
		topic("cleanup.policy", List, "delete").oneOf("compact", "delete").maybeEmpty().repeats().from("log.cleanup.policy").
			doc("How old data leaves the log: delete drops whole segments by age and size, compact keeps the last record of each key, both may be given; empty keeps everything."),
		topic("retention.ms", Long, "604800000").min(-1).
			from("log.retention.ms").fromTimes("log.retention.minutes", minuteMillis).fromTimes("log.retention.hours", hourMillis).
			doc("Age at which segments are deleted when cleanup.policy has delete; counted from a segment's newest record. -1: never."),
		topic("retention.bytes", Long, "-1").from("log.retention.bytes").
			doc("Size of a partition, hot and tiered together, above which its oldest segments are deleted when cleanup.policy has delete. -1: no limit."),
		topic("local.retention.ms", Long, defaultLocalMillis).min(-2).from("log.local.retention.ms").
			doc("How long data that is in the bucket stays in the hot log as well. -2: as long as retention.ms; -1: no limit by time. The node's hot budget may evict earlier."),
		topic("local.retention.bytes", Long, defaultLocalBytes).min(-2).from("log.local.retention.bytes").
			doc("How many bytes of a partition that are in the bucket stay in the hot log as well. -2: as many as retention.bytes; -1: no limit by size. The node's hot budget may evict earlier."),
		topic("segment.bytes", Int, defaultSegmentBytes).min(MinSegmentBytes).from("log.segment.bytes").
			doc("Size at which a segment is sealed and uploaded at the latest; varve.segment.max.bytes caps it and the node's hot budget may seal earlier."),
		topic("internal.segment.bytes", Int, "").min(1).internal().null().
			doc("For tests: takes the place of segment.bytes and may be smaller than that allows."),
		topic("segment.ms", Long, "3600000").min(1).from("log.roll.ms").fromTimes("log.roll.hours", hourMillis).
			doc("Age of a segment's first record at which it is sealed and uploaded at the latest; varve.segment.max.ms caps it."),
		topic("segment.jitter.ms", Long, "0").min(0).from("log.roll.jitter.ms").fromTimes("log.roll.jitter.hours", hourMillis).noEffect().
			doc("Kafka takes up to this off segment.ms so that partitions do not roll all at once; here the workers that seal are few and take partitions in turn."),
		topic("delete.retention.ms", Long, "86400000").min(0).from("log.cleaner.delete.retention.ms").
			doc("How long a tombstone stays readable after compaction has removed what it deletes."),
		topic("min.compaction.lag.ms", Long, "0").min(0).from("log.cleaner.min.compaction.lag.ms").
			doc("Age that a record must reach before compaction may remove it. Not above max.compaction.lag.ms."),
		topic("max.compaction.lag.ms", Long, maxLong).min(1).from("log.cleaner.max.compaction.lag.ms").
			doc("Age at which a record must have been looked at by compaction, however little there is to gain."),
		topic("min.cleanable.dirty.ratio", Double, "0.5").min(0).max(1).from("log.cleaner.min.cleanable.ratio").
			doc("Share of a partition that must not have been compacted yet before compaction runs."),
		topic("remote.storage.enable", Boolean, "true").fixed().oneOf("true").must(onlyTrue).
			doc("Always true: every topic's segments settle into the bucket."),
		topic("remote.log.copy.disable", Boolean, "false").noEffect().
			doc("Kafka stops uploads of the topic with it; here uploads cannot be stopped, as only they bound the local disk."),
		topic("remote.log.delete.on.disable", Boolean, "false").noEffect().
			doc("Kafka deletes tiered data when tiering is switched off; here it cannot be switched off."),
		topic("remote.copy.lag.ms", Long, "0").min(-1).from("log.remote.copy.lag.ms").noEffect().
			doc("Kafka delays the upload of a closed segment by this; here a segment is uploaded when it is sealed."),
		topic("remote.copy.lag.bytes", Long, "-1").min(-1).from("log.remote.copy.lag.bytes").noEffect().
			doc("Kafka delays the upload of a closed segment until this many bytes follow it; here a segment is uploaded when it is sealed."),
	}
}

// topicFormatDefs are the topic configs that decide which records are accepted and how they are stored.
func topicFormatDefs() []*Def {
	return []*Def{
		topic("max.message.bytes", Int, "1048588").min(0).from("message.max.bytes").
			doc("Largest record batch accepted, as sent (compressed), with its offset and length fields."),
		topic("max.decompressed.message.bytes", Int, maxDecompressedDefault).min(1).max(2147483639).from("max.decompressed.message.bytes").
			doc("Largest size that a record may decompress to; larger ones are refused, so that a small batch cannot take the broker's memory."),
		topic("min.insync.replicas", Int, defaultMinISR).min(1).from("min.insync.replicas").
			doc("In-sync replicas, the leader counted, that a produce request with acks=all needs. In force is the smaller of this and the partition's replication factor."),
		topic("message.timestamp.type", String, "CreateTime").oneOf("CreateTime", "LogAppendTime").from("log.message.timestamp.type").
			doc("Whose clock stamps records: the producer's (CreateTime) or the broker's at the append (LogAppendTime)."),
		topic("message.timestamp.before.max.ms", Long, maxLong).min(0).from("log.message.timestamp.before.max.ms").
			doc("How far a CreateTime timestamp may lie before the broker's clock."),
		topic("message.timestamp.after.max.ms", Long, "3600000").min(0).from("log.message.timestamp.after.max.ms").
			doc("How far a CreateTime timestamp may lie after the broker's clock."),
		topic("compression.type", String, "producer").oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer").from("compression.type").
			doc("Codec that batches are stored with; producer keeps each as it came, any other recompresses what came otherwise."),
		topic("compression.gzip.level", Int, "-1").min(1).max(9).or("-1").from("compression.gzip.level").
			doc("Effort of gzip where compression.type is gzip. -1: the codec's default."),
		topic("compression.lz4.level", Int, "9").min(1).max(17).from("compression.lz4.level").
			doc("Effort of lz4 where compression.type is lz4."),
		topic("compression.zstd.level", Int, "3").min(-131072).max(22).from("compression.zstd.level").
			doc("Effort of zstd where compression.type is zstd."),
		topic("unclean.leader.election.enable", Boolean, "false").from("unclean.leader.election.enable").
			doc("Whether a replica outside the in-sync set may lead when no other is left, at the price of acknowledged records."),
	}
}

// topicAcceptedDefs are stored and reported for tools that set them.
func topicAcceptedDefs() []*Def {
	const disk = "Tunes Kafka's files on disk; Varve's hot log has none of that kind."
	const flush = "Tunes when Kafka syncs its files; Varve syncs before every acknowledgement."
	const throttle = "Replicas whose replication traffic Kafka throttles, as partition:broker pairs or *."
	return []*Def{
		topic("segment.index.bytes", Int, "10485760").min(4).from("log.index.size.max.bytes").noEffect().doc(disk),
		topic("index.interval.bytes", Int, "4096").min(0).from("log.index.interval.bytes").noEffect().doc(disk),
		topic("file.delete.delay.ms", Long, "60000").min(0).from("log.segment.delete.delay.ms").noEffect().doc(disk),
		topic("preallocate", Boolean, "false").from("log.preallocate").noEffect().doc(disk),
		topic("flush.messages", Long, maxLong).min(1).from("log.flush.interval.messages").noEffect().doc(flush),
		topic("flush.ms", Long, maxLong).min(0).from("log.flush.interval.ms").noEffect().doc(flush),
		topic("leader.replication.throttled.replicas", List, "").maybeEmpty().must(throttledReplicas).noEffect().doc(throttle),
		topic("follower.replication.throttled.replicas", List, "").maybeEmpty().must(throttledReplicas).noEffect().doc(throttle),
		topic("errors.deadletterqueue.group.enable", Boolean, "false").noEffect().
			doc("Lets share groups use the topic as their dead-letter queue."),
	}
}
