// SPDX-License-Identifier: Apache-2.0

package ops

import "time"

const (
	// maxTokenBytes bounds the token file, maxBodyBytes a request's body, maxHeaderBytes its header.
	maxTokenBytes  = 4 << 10
	maxBodyBytes   = 1 << 20
	maxHeaderBytes = 64 << 10
	// defaultSegmentPage and maxSegmentPage bound how many manifest entries one answer holds.
	defaultSegmentPage = 1_000
	maxSegmentPage     = 10_000

	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// shutdownGrace is how long requests that are being answered may go on after the server was told to stop.
	shutdownGrace = 5 * time.Second
)
