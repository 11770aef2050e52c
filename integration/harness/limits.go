// SPDX-License-Identifier: Apache-2.0

package harness

import "time"

const (
	// readyTimeout bounds a start, stopTimeout a polite end. They are generous: the machine may run other things.
	readyTimeout = 90 * time.Second
	stopTimeout  = 60 * time.Second
	// commandTimeout bounds one command line, among them starts that ask etcd for half a minute before they give up, on a disk that others fill.
	commandTimeout = 5 * time.Minute
	// buildTimeout bounds the build of a binary on a cold cache.
	buildTimeout = 15 * time.Minute
	probeTimeout = 5 * time.Second
	pollInterval = 20 * time.Millisecond
	// logTail is how much of a log a failure shows.
	logTail = 6 << 10
	// firstPort and lastPort enclose the ports that are chosen, below Linux' ephemeral range.
	firstPort, lastPort = 20000, 32000
)
