// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/varve/varve/broker"
	"github.com/varve/varve/record"
)

// bytesIn estimates what came in at each led partition: the records that were appended, times what a record in its hot log takes. It
// is asked by one goroutine.
type bytesIn struct {
	partitions func() []*broker.Partition
	seen       map[record.PartitionID]arrived
}

type arrived struct {
	end   record.Offset
	bytes int64
}

func (b *bytesIn) count() map[record.PartitionID]int64 {
	out, seen := map[record.PartitionID]int64{}, map[record.PartitionID]arrived{}
	for _, p := range b.partitions() {
		m := p.Marks()
		if !m.Leading {
			continue
		}
		a, known := b.seen[p.ID()]
		if !known {
			a.end = m.LogEnd
		}
		if hot := int64(m.LogEnd - m.Local); hot > 0 && m.LogEnd > a.end {
			a.bytes += int64(float64(m.LogEnd-a.end) * float64(m.HotSize) / float64(hot))
		}
		a.end = m.LogEnd
		seen[p.ID()], out[p.ID()] = a, a.bytes
	}
	b.seen = seen
	return out
}
