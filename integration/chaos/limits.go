// SPDX-License-Identifier: Apache-2.0

package chaos

import "time"

const (
	// lease of the registrations: the one that the promised failover times are for.
	lease = 3 * time.Second
	// recovery is T_rec of V1: how long after the last fault everything may take to be whole again.
	recovery    = 30 * time.Second
	dialTimeout = 2 * time.Second
	// requestTimeout bounds one raw request: a frozen node does not answer.
	requestTimeout = 3 * time.Second
	// failoverPromise is how soon after a kill every partition acknowledges to all replicas again, on a machine that has nothing else to do.
	failoverPromise = 5 * time.Second
	// failoverPatience is how long a kill waits for the acknowledgements that it delays: twice what is promised.
	failoverPatience = 10 * time.Second
	nodes            = 3
	partitions       = 4
	fetchBytes       = 64 << 10
	// smallDiskBytes is the size of the disk that is filled; a node keeps some of it in reserve.
	smallDiskBytes = 1 << 30
	// smallDiskLeft is what nearly full leaves: less than the mark at which a node refuses appends, 192 MiB.
	smallDiskLeft = 80 << 20
)

const (
	shortSeconds = 90
	shortSeed    = 1
	longSeconds  = 900
)
