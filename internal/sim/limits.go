// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// All times are virtual.
const (
	// latency is how long a message takes at least. Without any, a client that asks again at once, as all do that meet a node without its
	// lease, would ask for ever at one instant.
	latency = 200 * time.Microsecond
	// syncTime is how long a sync of the log takes at most while the disk does not stall. What is written can be read meanwhile.
	syncTime = 4 * time.Millisecond
	// slowStart is how long the syncs stall of a node that comes back with a slow disk.
	slowStart = 3 * time.Second
	// lateTxn is how long after its sender gave it up a metadata transaction may still be executed.
	lateTxn = 9 * time.Second
	// cutEvery is how long no node is cut off as it hands over after one was.
	cutEvery = 20 * time.Second
	// lastWords is how long what a process has sent before its end may still be under way.
	lastWords = 10 * time.Millisecond
	// patience is how long a request is asked again while faults last, before the run fails (V8).
	patience = 3 * time.Minute
	// recovery is T_rec of V1: how long after the last fault everything works again.
	recovery = 30 * time.Second
	// settling is how long the end waits for the bucket to catch up (V4).
	settling = 2 * time.Minute
	// calmFor is how long a controller must decide nothing to be at rest: it waits 15 s for load to be uneven, and looks every 10 s.
	calmFor = 40 * time.Second
	// loadPerRecord is what a record counts as load, in bytes: more than most have, so that a burst is no idle time.
	loadPerRecord = 4 << 10
	// runLimit ends a run that hangs.
	runLimit = 2 * time.Hour
	// maxFailures is how many findings of one run are reported.
	maxFailures = 10
)
