// SPDX-License-Identifier: Apache-2.0

package differential

// intended are the differences from Kafka that are meant. docs/differences.md tells them to users.
var intended = []difference{
	// What no client can tell apart, or is said in addition.
	{"*", "*ErrorMessage", "null", "text", "an error carries a message where Kafka sends the code alone"},
	{"fetch*", "*.AbortedTransactions", "null", "{}", "without records, no aborted transactions and none to tell are the same"},
	{"fetch*", "*.AbortedTransactions", "{}", "null", "without records, no aborted transactions and none to tell are the same"},
	{"session*", "*.AbortedTransactions", "{}", "null", "without records, no aborted transactions and none to tell are the same"},
	{"produce*", "*.LogStartOffset", "0", "-1", "a refused batch is answered without the log start"},
	{"idempotence*", "*.LogStartOffset", "0", "-1", "a refused batch is answered without the log start"},

	// Produce.
	{"produce/codec 5 *", "*.ErrorCode", "-1", "76", "an unknown codec has a definite code"},
	{"produce/gzip of nothing known *", "*.ErrorCode", "-1", "87", "an undecodable payload has a definite code"},
	{"produce/wrong offset delta *", "*", "", "", "what is refused on arrival is never in the log; Kafka stores the batch as sent"},
	{"produce/stored, wrong offset delta *", "*", "", "", "what is refused on arrival is never in the log; Kafka stores the batch as sent"},
	{"produce/stored, topic zstd, batch gzip *", "*.RecordBatches", "*attributes=4*", "*attributes=4*", "another implementation of zstd gives other bytes"},
	{"*duplicate*", "*.LogAppendTime", "now", "-1", "a duplicate of a batch with CreateTime has no append time; Kafka answers the batch's timestamp"},

	// Fetch.
	{"fetch/*two batches and a half *", "*.RecordBatches", "*part of a batch*", "*", "batches are whole"},

	// ListOffsets.
	{"list offsets/*special -3 after deleting*", "*", "", "", "an offset below the log start is never an answer"},
	{"list offsets/current epoch, -3 *", "*", "", "", "an offset below the log start is never an answer"},
	{"list offsets/*special -6*", "*.Offset", "-1", "", "the first offset that is not in the bucket; Kafka has no tier here"},
	{"list offsets/*special -6*", "*.LeaderEpoch", "-1", "", "the epoch of the first offset that is not in the bucket"},

	// Groups.
	{"consumer group/fetch, two members, an epoch alone *", "*.ErrorCode", "-1", "25", "who gives a member epoch and no member id is no member"},

	// Administration.
	{"create topics/*(validate only true) v7", "*.TopicID", "an id", "no id", "nothing is created, so there is no id; Kafka makes one up"},
	{"update features/*", "*.ErrorMessage", "text", "null", "there is nothing to say beside a success"},
	{"alter configs/unknown operation *", "*.ErrorCode", "-1", "42", "an unknown operation has a definite code"},
	{"*", "*[segment.bytes]*Value", "1073741824", "67108864", "a segment is an upload: smaller ones settle sooner"},
	{"*", "*[segment.ms]*Value", "604800000", "3600000", "an idle topic settles too"},
	{"*", "*[local.retention.ms]*Value", "-2", "600000", "the disk holds the tail"},
	{"*", "*[local.retention.bytes]*Value", "-2", "268435456", "the disk holds the tail"},
	{"*", "*[remote.storage.enable]*Value", "false", "true", "every topic settles"},
	{"*", "*[remote.storage.enable].ReadOnly", "false", "true", "every topic settles"},
	{"*", "*[min.insync.replicas]*", "", "", "the default is 2, and Kafka's is set by the script that starts it"},
}
