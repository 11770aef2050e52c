// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// All times are virtual.
const (
	// latency is how long a message takes at least. Without any, a client that asks again at once, as all do that meet a node without its
	// lease, would ask for ever at one instant.
	latency = 200 * time.Microsecond
	// lastWords is how long what a process has sent before its end may still be under way.
	lastWords = 10 * time.Millisecond
	// patience is how long a request is asked again while faults last, before the run fails (V8).
	patience = 3 * time.Minute
	// recovery is T_rec of V1: how long after the last fault everything works again.
	recovery = 30 * time.Second
	// settling is how long the end waits for the bucket to catch up (V4).
	settling = 2 * time.Minute
	// runLimit ends a run that hangs.
	runLimit = 2 * time.Hour
	// maxFailures is how many findings of one run are reported.
	maxFailures = 10
)
