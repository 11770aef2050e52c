// SPDX-License-Identifier: Apache-2.0

package quota

import "time"

const (
	// maxMeters bounds the clients of one kind that are metered apart (U3).
	maxMeters = 10_000
	// idleAfter is how long a meter that nobody uses is kept, for the metrics' sake; what it says is over sooner.
	idleAfter = 5 * time.Minute
	// sweepEvery is how often idle meters are looked for.
	sweepEvery = time.Minute
)
