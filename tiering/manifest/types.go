// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

var (
	// ErrEdit: the edit does not fit this manifest.
	ErrEdit = errors.New("manifest: edit does not fit")
	// ErrBroken: entries or pages do not tile (M1).
	ErrBroken = errors.New("manifest: does not tile")
	// ErrCorrupt: an encoded entry or page is not what was written.
	ErrCorrupt = errors.New("manifest: corrupt")
	// ErrNewerFormat: a newer binary wrote this.
	ErrNewerFormat = errors.New("manifest: newer format")
)

// Entry describes one segment and where it lies.
type Entry struct {
	Attempt                    segment.Attempt
	Object                     string
	Pos, Len                   int64
	Base, End                  record.Offset
	DataBytes                  int64
	MinTimestamp, MaxTimestamp int64
	OffsetOfMax                record.Offset
	Records                    int64
	FooterLen                  uint32
	CRC                        uint32
	HasAborted                 bool
	FirstUnstable              record.Offset
	SealedAtMillis             int64
	Gen                        int64
	Epochs                     []record.EpochStart
}

// FromInfo is the entry of a segment that is an object of its own.
func FromInfo(i *segment.Info, object string, crc uint32) Entry {
	return Entry{Attempt: i.Attempt, Object: object, Len: i.Bytes, Base: i.Base, End: i.End, DataBytes: i.DataBytes,
		MinTimestamp: i.MinTimestamp, MaxTimestamp: i.MaxTimestamp, OffsetOfMax: i.OffsetOfMax, Records: i.Records,
		FooterLen: uint32(i.FooterLen), CRC: crc, HasAborted: i.HasAborted, FirstUnstable: i.FirstUnstable,
		SealedAtMillis: i.SealedAtMillis, Gen: i.Gen, Epochs: i.Epochs}
}

// LastEpoch is the leader epoch in force at the end of the segment.
func (e *Entry) LastEpoch() record.Epoch {
	if len(e.Epochs) == 0 {
		return record.NoEpoch
	}
	return e.Epochs[len(e.Epochs)-1].Epoch
}

// EpochAt is the leader epoch in force at o, an offset of this segment.
func (e *Entry) EpochAt(o record.Offset) record.Epoch {
	for i := len(e.Epochs) - 1; i >= 0; i-- {
		if e.Epochs[i].Start <= o {
			return e.Epochs[i].Epoch
		}
	}
	return record.NoEpoch
}

// Page points to an immutable object with folded entries and carries their extremes.
type Page struct {
	Attempt                    segment.Attempt
	Object                     string
	Len                        int64
	CRC                        uint32
	Base, End                  record.Offset
	Count                      int
	DataBytes                  int64
	MinTimestamp, MaxTimestamp int64
	OffsetOfMax                record.Offset
	MinEpoch, MaxEpoch         record.Epoch
}

// PageLoader gives the entries of a page, as ReadPage decoded them. A lookup may call it several times.
type PageLoader func(Page) ([]Entry, error)
