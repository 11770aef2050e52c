// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/hex"

	"github.com/varve/varve/record"
)

// NoTimestamp is the maximum timestamp of what holds no data record.
const NoTimestamp int64 = -1

// Attempt is the UUID of one upload attempt. It is never reused, so it identifies content: caches are keyed by it.
type Attempt [16]byte

// String is the form used in object names and keys.
func (a Attempt) String() string { return hex.EncodeToString(a[:]) }

// Identity says where a segment belongs and which attempt made it.
type Identity struct {
	ClusterID   string
	Gen         int64
	Topic       record.TopicID
	TopicName   string
	Partition   int32
	LeaderEpoch record.Epoch
	Attempt     Attempt
}

// Range is a half-open range of offsets.
type Range struct{ Base, End record.Offset }

// Source gives the batches of a range in order, from the one that holds the first offset on. A batch is valid during the call only; an error of fn ends the scan and is returned.
type Source interface {
	Scan(from, limit record.Offset, fn func(record.Batch) error) error
}

// Producer is one entry of a producer snapshot; the state is opaque here.
type Producer struct {
	ID    int64
	State []byte
}

// Aborted is one aborted transaction: its producer, its first record and the offset of its abort marker.
type Aborted struct {
	ProducerID    int64
	First, Marker record.Offset
}

// Extra is what a segment carries besides the batches.
type Extra struct {
	Epochs         []record.EpochStart // the chain; what starts at or above the end is left out
	Producers      []Producer          // state at the end of the range
	Aborted        []Aborted
	FirstUnstable  record.Offset // LSO when sealed above it, else record.NoOffset
	SealedAtMillis int64
}

// Info describes one segment.
type Info struct {
	Identity
	Base, End                  record.Offset // End is the last offset + 1
	Bytes                      int64         // the whole object
	DataPos, DataBytes         int64
	DataCRC                    uint32
	Records                    int64
	MinTimestamp, MaxTimestamp int64 // MinTimestamp is the smallest batch base timestamp: a hint
	OffsetOfMax                record.Offset
	Epochs                     []record.EpochStart // in force within [Base, End)
	HasAborted                 bool
	FirstUnstable              record.Offset
	SealedAtMillis             int64
	FooterLen                  int64 // footer and trailer
}

// Chunk is one run of whole batches. Pos counts from the start of the segment.
type Chunk struct {
	Base         record.Offset
	Pos          int64
	Len          int32
	Records      int32
	MaxTimestamp int64 // over data records; NoTimestamp: none
	CRC          uint32
}

// Extent is where the producer snapshot lies.
type Extent struct {
	Pos      int64
	Len, Raw uint32
	CRC      uint32
	Count    uint32
}
