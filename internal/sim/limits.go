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
	// firstAlone is how long the node that comes back first after a power failure has, once registrations have ended, before the next one comes.
	firstAlone = 2 * time.Second
	// cutFor is how long a node is cut off at most as it hands over.
	cutFor = 6 * time.Second
	// cutEvery is how long no node is cut off as it hands over after one was.
	cutEvery = 20 * time.Second
	// lastWords is how long what a process has sent before its end may still be under way.
	lastWords = 10 * time.Millisecond
	// aloneWait is how long behind replica.lag.time.max.ms a leader has to be alone in its in-sync set.
	aloneWait = 4 * time.Second
	// riskedSegmentMillis is how old what is not sealed of the risked partition gets.
	riskedSegmentMillis = "2000"
	// commitWait is how long a leader has to seal and upload then.
	commitWait = 8 * time.Second
	// electWait is how long behind the end of a lease an unclean election has.
	electWait = 4 * time.Second
	// writeWait is how long the one who writes the risked partition looks for its leader.
	writeWait = 4 * time.Second
	// lateRelease is how long after it was sent what a coordinator gives up is free; a node waits less for the answer.
	lateRelease = 7 * time.Second
	// memberTimeout is how long a member of a group waits for an answer, but for those that wait for the other members.
	memberTimeout = 4 * time.Second
	// answerWait is how long it waits for those.
	answerWait = 12 * time.Second
	// rebalanceWait is how long a rebalance waits for a member.
	rebalanceWait = 4 * time.Second
	// watcherTimeout is how long those who look at a group, and are no members, wait for an answer.
	watcherTimeout = 3 * time.Second
	// holdFor is how long a member holds a pose at most.
	holdFor = 5 * time.Second
	// poseWait is how long a pose is waited for.
	poseWait = 8 * time.Second
	// rebalanceWithin is how long a member of the other protocol waits for a rebalance to come into.
	rebalanceWithin = 20 * time.Second
	// lookEvery is the pause between two looks at the group.
	lookEvery = 20 * time.Millisecond
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
