// SPDX-License-Identifier: Apache-2.0

package consumer

import "time"

const (
	// maxTopics bounds the names in one member's subscription, maxRegex the bytes of a regular expression.
	maxTopics = 10_000
	maxRegex  = 4096
	// maxInstructions bounds what a regular expression is compiled to, which takes time in the turn of all groups of a shard.
	maxInstructions = 10_000
	// fullBytes is the stored size from which on no member is added: what the members do must find room too.
	fullBytes = 704 << 10
	// storedBytes is what the stored size and a new subscription together may come to: whoever would not fit is refused alone, before the group
	// is too large for all of its members.
	storedBytes = 896 << 10
	// smallBytes is what any member may say.
	smallBytes = 4 << 10
	// regexPause is the least time between two looks at all topics for the sake of regular expressions. Kafka's number.
	regexPause = 10 * time.Second
)
