// SPDX-License-Identifier: Apache-2.0

package group

import "time"

const (
	// newMemberTimeout is how long a new member is kept while its first join waits for an answer: it may be gone, and no session
	// timeout runs yet. Kafka's number.
	newMemberTimeout = 5 * time.Minute
	// maxPending bounds the member ids of a group that were given out and not come back yet.
	maxPending = 10_000
)
