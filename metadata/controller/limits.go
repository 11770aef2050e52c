// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

const (
	// maxAutoFactor is the automatic replication factor of a cluster that has the nodes for it.
	maxAutoFactor = 3
	// movesPerNode bounds the moves under way that bring replicas to one node, of those that nobody asked for.
	movesPerNode = 20
	// swapsPerPlan bounds the changes of order in one plan.
	swapsPerPlan = 100
	// maxReported bounds the partitions in one node's report of load; the busiest are in it.
	maxReported = 2000
	// samplesKept is how many samples of the bytes that came in make a rate.
	samplesKept = 7
)

// Balance by load: it begins above one ratio of the busiest node to the mean and goes on until another, so that noise moves nothing.
const (
	skewBegins = 1.15
	skewEnds   = 1.05
	// leastGain is what two nodes must come nearer to each other for something to move, as a share of the busier one's load.
	leastGain = 0.01
	// idleRate is the load of the whole cluster, in bytes per second, below which the number of leaders counts instead.
	idleRate = 16 << 10
	// leastSkew is what the busiest node has to have above the mean, in bytes per second, unless a node leads nothing.
	leastSkew = 16 << 10
	// leastRate is the load of a partition, in bytes per second, below which it is not reported.
	leastRate = 1 << 10
	// lightShare is the share of the mean weight below which a partition moves for load only where that evens out numbers as well.
	lightShare = 0.5
	// idleShare is what a partition without load weighs, as a share of the mean load of all.
	idleShare = 0.01
	// countSlack and countRatio: numbers of leaders or replicas are uneven when they are off the mean by more than this, and when a
	// node has none.
	countSlack = 2.0
	countRatio = 0.25
	// reportChange is the share of a report's load that has to have changed to be reported at once, driftChange to be reported late.
	reportChange = 0.20
	driftChange  = 0.05
)

// Times.
const (
	// restAfterMove is how long balance leaves a partition alone that was moved, by whomever.
	restAfterMove = 10 * time.Minute
	// skewHolds is how long load has to be uneven before anything moves for it, unless a node has just come.
	skewHolds = 15 * time.Second
	// nodeIsNew is how long a node counts as having just come.
	nodeIsNew = time.Minute
	// sampleEvery is how often the bytes that came in are looked at.
	sampleEvery = 5 * time.Second
	// reportEvery is the least time between two reports, driftEvery between two for a small change.
	reportEvery = 10 * time.Second
	driftEvery  = time.Minute
	// uncleanAfter is how long a partition has to be without a leader before one is elected uncleanly, where that is allowed.
	uncleanAfter = 15 * time.Second
	// rateKnown is after how long a new leader's silence about a partition means that nothing comes in.
	rateKnown = 45 * time.Second
	// planEvery is how often the holder of the role plans without a change of the image, planPause the least time between two plans.
	planEvery = 10 * time.Second
	planPause = 100 * time.Millisecond
	// electEvery is how often a node tries to get the role when nothing hints at its being free.
	electEvery = time.Minute
	// retryPause is the pause after an error of the metadata store.
	retryPause = time.Second
)
