// SPDX-License-Identifier: Apache-2.0

package config

// Limits and defaults that the tables name more than once or that differ from Kafka's.
const (
	MinSegmentBytes        = 1 << 20     // segment.bytes may not go below; internal.segment.bytes may
	MinIntervalMillis      = 100         // lowest value of Varve's own intervals
	defaultSegmentBytes    = "67108864"  // 64 MiB; Kafka: 1 GiB
	defaultSegmentHours    = "1"         // Kafka: 168
	defaultLocalMillis     = "600000"    // Kafka: -2, the same as retention.ms
	defaultLocalBytes      = "268435456" // 256 MiB; Kafka: -2
	defaultMinISR          = "2"         // Kafka: 1; the replication factor caps it
	maxLong                = "9223372036854775807"
	maxInt                 = "2147483647"
	maxDecompressedDefault = "2147483639"
	hourMillis             = 3_600_000
	minuteMillis           = 60_000
	maxValueBytes          = 32_767 // of one config value; Kafka's own bound on a string in its metadata log
)
