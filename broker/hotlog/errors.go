// SPDX-License-Identifier: Apache-2.0

package hotlog

import "errors"

var (
	// ErrDiskFull: the disk is above its high-water mark, so nothing may be appended. Everything else works.
	ErrDiskFull = errors.New("hotlog: disk full")
	// ErrClosed: the database is closed or closing, has failed, or the log was dropped.
	ErrClosed = errors.New("hotlog: closed")
	// ErrQueueFull: more waits for the committer than the limits allow. Nothing was queued.
	ErrQueueFull = errors.New("hotlog: append queue full")
	// ErrTrimmed: the offset is below the local start.
	ErrTrimmed = errors.New("hotlog: offset below the local start")
	// ErrCorrupt: stored data contradicts itself or its checksums.
	ErrCorrupt = errors.New("hotlog: corrupt")
	// ErrLocked: another process (or another DB of this one) holds the data directory.
	ErrLocked = errors.New("hotlog: data directory in use")
	// ErrNewerFormat: a newer version of Varve wrote the data directory.
	ErrNewerFormat = errors.New("hotlog: newer format")
	// ErrOlderFormat: the data directory is from before record batches lay in log files.
	ErrOlderFormat = errors.New("hotlog: older format")
	// ErrFailoverDir: the directory that may hold the end of the log was not given.
	ErrFailoverDir = errors.New("hotlog: failover directory missing")
	// ErrNotContiguous: the batch or epoch does not begin where the log ends.
	ErrNotContiguous = errors.New("hotlog: not contiguous with the end of the log")
	// ErrEpoch: a leader epoch would go back.
	ErrEpoch = errors.New("hotlog: leader epoch goes back")
	// ErrOutOfRange: the offset is past the end of the log.
	ErrOutOfRange = errors.New("hotlog: offset past the end")
	// ErrBusy: a truncate or reset of the same log has not ended.
	ErrBusy = errors.New("hotlog: truncate or reset in progress")
	// ErrOpen: the log is open already.
	ErrOpen = errors.New("hotlog: log open already")
	// ErrFailed: an apply or a sync failed; the process is about to end. Wraps into what waiters get.
	ErrFailed = errors.New("hotlog: write failed")
)
