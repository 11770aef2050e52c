// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// txnLeaderAPIs are what leaders of partitions are asked by coordinators of transactions.
func txnLeaderAPIs() []api {
	return []api{
		{key: 27, name: "WriteTxnMarkers", min: 1, max: 2, body: func() kmsg.Request { return new(kmsg.WriteTxnMarkersRequest) }, serve: (*Server).writeTxnMarkers},
	}
}
