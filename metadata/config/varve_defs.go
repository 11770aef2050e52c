// SPDX-License-Identifier: Apache-2.0

package config

// varveDefs are the configs that Kafka has no name for.
func varveDefs() []*Def {
	const auto = " 0: chosen from the memory this process may use."
	return []*Def{
		broker("varve.segment.max.ms", Long, "3600000").min(MinIntervalMillis).dynamic().
			doc("Upper bound of segment.ms on this node: nothing stays unsealed longer, whatever a topic says."),
		broker("varve.segment.max.bytes", Long, "134217728").min(MinSegmentBytes).max(1 << 30).dynamic().
			doc("Upper bound of segment.bytes on this node."),
		broker("varve.hot.bytes", Long, "0").min(1 << 20).or("0").dynamic().
			doc("Hot bytes that all partitions of this node may hold together; above it the partition with most unsealed bytes seals first. 0: a tenth of the disk, at least 1 GiB."),
		broker("varve.manifest.etcd.entries", Int, "500000").min(100).dynamic().
			doc("Segments of the cluster that are listed in etcd one by one; above it the oldest are folded into pages in the bucket."),
		broker("varve.upload.parallelism", Int, "4").min(1).max(256).
			doc("Segments that this node uploads at the same time."),
		broker("varve.upload.deadline.ms", Long, "60000").min(MinIntervalMillis).dynamic().
			doc("How long one upload may take before it is given up and tried again."),
		broker("varve.cache.bytes", Long, "0").min(1 << 20).or("0").
			doc("Memory for segment indexes and data read back from the bucket." + auto),
		broker("varve.gc.grace.ms", Long, "3600000").min(MinIntervalMillis).dynamic().
			doc("How long an object stays in the bucket after nothing refers to it, so that reads that began before can end."),
		broker("varve.gc.interval.ms", Long, "300000").min(MinIntervalMillis).dynamic().
			doc("How often objects that nothing refers to are looked for."),
		broker("varve.broker.lease.ms", Long, "10000").min(1000).max(600000).
			doc("How long a node may be out of touch with etcd before others take over what it leads."),
		broker("varve.ready.timeout.ms", Long, "0").min(MinIntervalMillis).or("0").dynamic().
			doc("After this long /readyz no longer waits for partitions that are not in sync. 0: it waits for ever."),
		broker("varve.request.memory.bytes", Long, "0").min(1 << 20).or("0").
			doc("Bytes of requests and answers that all connections may hold in memory together; beyond it connections are not read." + auto),
		broker("varve.connection.memory.bytes", Long, "0").min(1 << 16).or("0").
			doc("Bytes of requests and answers that one connection may hold in memory; beyond it that connection is not read." + auto),
		broker("varve.fetch.cold.memory.bytes", Long, "0").min(1 << 20).or("0").
			doc("Memory for reads from the bucket that are under way; a read reserves its part before it starts." + auto),
	}
}
