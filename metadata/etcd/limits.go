// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"time"
)

const (
	dialTimeout = 3 * time.Second
	pingEvery   = 10 * time.Second
	pingTimeout = 3 * time.Second
	retryEvery  = 200 * time.Millisecond
)

// floors are the first patch releases, by minor, without the faults that lose leases of live clients or send progress notices too
// early. A minor that is newer than all of them is fine.
var floors = map[int]int{4: 29, 5: 11}

func checkRelease(version string) error {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("etcd says that its version is %q: cannot read that", version)
	}
	floor, listed := floors[minor]
	if major == 3 && (minor < 4 || listed && patch < floor) {
		return fmt.Errorf("etcd %s has known faults (lost leases): run 3.4.29, 3.5.11, 3.6 or newer", version)
	}
	return nil
}
