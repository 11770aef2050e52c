// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// coreAPIs are the rows of the data path. The rows of administration are in table_admin.go.
func coreAPIs() []api {
	return []api{
		{key: 0, name: "Produce", min: 0, max: 13, refuseBelow: 3, records: true, decode: decodeProduce, start: startProduce, finish: finishProduce},
		{key: 1, name: "Fetch", min: 4, max: 18, decode: decodeFetch, finish: finishFetch},
		{key: 2, name: "ListOffsets", min: 1, max: 11, body: func() kmsg.Request { return new(kmsg.ListOffsetsRequest) }, serve: (*Server).listOffsets},
		{key: apiVersionsKey, name: "ApiVersions", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.ApiVersionsRequest) }, serve: (*Server).apiVersions},
		{key: 22, name: "InitProducerId", min: 0, max: 5, body: func() kmsg.Request { return new(kmsg.InitProducerIDRequest) }, serve: (*Server).initProducerID},
		{key: 23, name: "OffsetForLeaderEpoch", min: 2, max: 4, body: func() kmsg.Request { return new(kmsg.OffsetForLeaderEpochRequest) }, serve: (*Server).offsetForLeaderEpoch},
	}
}

// table is what the server serves, by key.
type table struct {
	rows  []api // ascending by key
	byKey map[int16]*api
}

func newTable(rows []api) (*table, error) {
	slices.SortFunc(rows, func(a, b api) int { return int(a.key) - int(b.key) })
	t := &table{rows: rows, byKey: make(map[int16]*api, len(rows))}
	for i := range t.rows {
		a := &t.rows[i]
		if t.byKey[a.key] != nil {
			return nil, fmt.Errorf("API key %d is twice in the table", a.key)
		}
		// The first flexible version is kmsg's to know.
		for v, r := int16(0), kmsg.RequestForKey(a.key); v <= a.max+1; v++ {
			if r.SetVersion(v); r.IsFlexible() || v > a.max {
				a.flexibleFrom = v
				break
			}
		}
		t.byKey[a.key] = a
	}
	return t, nil
}

// serves tells whether a request of this key and version is answered at all.
func (t *table) serves(key, version int16) *api {
	a := t.byKey[key]
	if a == nil || version < max(a.min-a.silentBelow, a.refuseBelow) || version > a.max {
		return nil
	}
	return a
}
