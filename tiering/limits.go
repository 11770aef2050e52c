// SPDX-License-Identifier: Apache-2.0

package tiering

import "time"

// Defaults; Config and ReaderConfig change those that a workload needs to.
const (
	DefaultWorkers         = 4
	DefaultSegmentMaxBytes = 128 << 20
	DefaultSegmentMaxAge   = time.Hour
	DefaultManifestEntries = 500_000
	DefaultGCGrace         = time.Hour
	DefaultUploadDeadline  = 5 * time.Minute
	DefaultCacheBytes      = 64 << 20
	DefaultIndexCacheBytes = 16 << 20
	DefaultInFlightBytes   = 32 << 20
	DefaultGetDeadline     = 30 * time.Second
)

const (
	// MinInterval is the shortest interval of a background job.
	MinInterval = 100 * time.Millisecond
	// outageLogEvery is how often a bucket that does not answer is worth a line in the log.
	outageLogEvery = 10 * time.Second
	// minFold is how many entries a partition keeps in the metadata store at least before it folds.
	minFold = 16
	// dropBatch is how many segments leave the manifest per Txn (protocols R4).
	dropBatch = 40
	// groupBytes is the aligned unit of reading and caching: chunks whose position falls into the same MiB.
	groupBytes = 1 << 20
	// runOnBytes bounds the one read of a time lookup whose first candidate chunk is cut by the log start and that runs on to the next
	// candidate. Above it a second data GET is cheaper than what lies between.
	runOnBytes = 16 << 20
	// maxReadahead is how many groups are read ahead of a sequential reader.
	maxReadahead = 4
	// maxFlights bounds GETs under way or waiting for memory, those whose readers have left included.
	maxFlights = 256
	// maxFreeBuffers bounds the buffers kept for reuse.
	maxFreeBuffers = 16
	// getTries is how often a GET whose bytes fail their checksum is sent: a flipped bit on the way is not a corrupt object.
	getTries = 2
	// retryMin and retryMax bound the pause of a partition after a failed step.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
	// minRearm is the shortest time after which a deadline brings a partition back.
	minRearm = 10 * time.Millisecond
	// budgetInterval is how often the hot budget is looked at.
	budgetInterval = 250 * time.Millisecond
	// sweepInterval is how often every led partition is looked at, whatever woke it or did not.
	sweepInterval = 5 * time.Minute
	// leastRate is how many bytes per second and processor uploads may read whatever comes in; above it headroom times what came in
	// within about incomeWindow, looked at each sampleInterval at most.
	leastRate      = 32 << 20
	headroom       = 1.25
	incomeWindow   = 5 * time.Second
	sampleInterval = 250 * time.Millisecond
	// halving is the time behind in which a byte of an upload comes to count for half as much, maxHalvings how often it does.
	halving     = 10 * time.Second
	maxHalvings = 2
	// paceBytes is how much an upload reads for one look at the pace, paceBurst what all may read at once, maxPause the longest wait.
	paceBytes = 64 << 10
	paceBurst = 2 * paceBytes
	maxPause  = time.Second
	// maxForced is how many partitions the hot budget makes seal or evict per round.
	maxForced = 16
)

const (
	// defaultPageEntries is how many entries a manifest page holds.
	defaultPageEntries = 1000
	// maxPages bounds the page pointers of one head: a value of the metadata store is small. 512 pages of 1,000 segments of 64 MiB are 32 TiB.
	maxPages = 512
	// gcKeys is how many objects one garbage record of a dropped page names.
	gcKeys = 500
)
