// SPDX-License-Identifier: Apache-2.0

package hotlog

import "time"

const (
	// defaultMaxBatchBytes bounds one Pebble batch of small requests; a larger request goes alone.
	defaultMaxBatchBytes = 4 << 20
	// quantumBytes is what one log may put into a Pebble batch while others wait.
	quantumBytes = 1 << 20
	// maxMisfits is how many logs the committer looks at in vain when a Pebble batch is nearly full.
	maxMisfits = 64
	// opOverhead is what an op counts beside its bytes.
	opOverhead = 128
	// maxInFlight is how many Pebble batches may be applied and not yet synced.
	maxInFlight = 2
	// maxQueuedBytes and maxQueuedOps bound what waits for the committer. One request larger than that is taken when nothing else waits.
	maxQueuedBytes = 256 << 20
	maxQueuedOps   = 1 << 16
	// maxFreeOps bounds the recycled queue entries, maxFreeState the producer state each may keep.
	maxFreeOps   = 4096
	maxFreeState = 1 << 10

	// DefaultMemTableBytes and SmallMemTableBytes are Options.MemTableBytes for a machine with plenty of memory, and with less than 1 GiB.
	DefaultMemTableBytes = 64 << 20
	SmallMemTableBytes   = 16 << 20
	// DefaultCacheBytes is Pebble's block cache: it holds index blocks and small batches; recent data is in the memtables.
	DefaultCacheBytes = 32 << 20

	// minTrimBytes and maxTrimBytes bound the dead bytes a log keeps before a range deletion is worth its cost to later seeks.
	minTrimBytes = 64 << 10
	maxTrimBytes = 1 << 20

	// hwInterval is how often at most a changed high-watermark checkpoint goes beside appended batches.
	hwInterval = 50 * time.Millisecond

	// diskCheckInterval and diskCheckBytes bound how stale the committer's view of the free space is.
	diskCheckInterval = 100 * time.Millisecond
	diskCheckBytes    = 64 << 20
	// maxHighWater and maxReserve bound what is kept free of appends and held in the reserve file on a large disk.
	maxHighWater = 4 << 30
	maxReserve   = 256 << 20
	// stayFull is how long appends stay refused after a write found no space, whatever the file system says about it.
	stayFull = 5 * time.Second
)

// Pebble's thresholds; DESIGN.md has the measurements.
const (
	// flushTombstonesAfter bounds how long a trim waits in a memtable that does not fill.
	flushTombstonesAfter = 10 * time.Second
	// separateFrom: batches of this size and up live in blob files, which compactions do not rewrite.
	separateFrom = 4 << 10
	// rewriteBlobsAfter and blobGarbageRatio: when a blob file pinned by few live batches is rewritten.
	rewriteBlobsAfter = 5 * time.Second
	blobGarbageRatio  = 0.2
)
