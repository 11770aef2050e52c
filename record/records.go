// SPDX-License-Identifier: Apache-2.0

package record

import "fmt"

// Record is a view of one record, good during the call it is given to. Key and Value are nil when null.
type Record struct {
	Offset    Offset
	Timestamp int64
	Key       []byte
	Value     []byte

	headers     []byte
	headerCount int32
}

// HeaderCount is how many headers the record has.
func (r *Record) HeaderCount() int { return int(r.headerCount) }

// EachHeader calls fn with each header in order until fn returns false. A null value is nil.
func (r *Record) EachHeader(fn func(key, value []byte) bool) {
	at := 0
	for range r.headerCount {
		var key, value span
		if key, value, at = header(r.headers, at); at < 0 {
			return // Not reached: the record was parsed before.
		}
		if !fn(key.of(r.headers), value.of(r.headers)) {
			return
		}
	}
}

// cursor walks the records of a batch that is taken to be a stored one: offset deltas ascend, with gaps after compaction.
type cursor struct {
	data  []byte
	at    int
	left  int32
	delta int32
	last  int32
	f     fields
}

func newCursor(b Batch, data []byte) cursor {
	return cursor{data: data, left: b.RecordCount(), delta: -1, last: b.LastOffsetDelta()}
}

// next moves to the next record. It is false at the end and at an error.
func (c *cursor) next() (bool, error) {
	if c.left <= 0 {
		if c.at != len(c.data) {
			return false, fmt.Errorf("%w: %s", ErrMalformed, faultRest)
		}
		return false, nil
	}
	at, fault := c.f.parse(c.data, c.at)
	if fault == "" && (c.f.offsetDelta <= c.delta || c.f.offsetDelta > c.last) {
		fault = faultDelta
	}
	if fault != "" {
		return false, fmt.Errorf("%w: %s, %d records before the end", ErrMalformed, fault, c.left)
	}
	c.at, c.delta = at, c.f.offsetDelta
	c.left--
	return true, nil
}

// Each calls fn with each record in order until fn returns false. Control records are records too: ask IsControl. The record
// and all it points to may be used during the call only.
func (b Batch) Each(fn func(*Record) bool) error {
	s := getScratch()
	defer s.release()
	data, err := s.records(b, MaxDecompressedBytes)
	if err != nil {
		return b.describe(err)
	}
	logAppend, base, baseTime, maxTime := b.IsLogAppendTime(), b.BaseOffset(), b.BaseTimestamp(), b.MaxTimestamp()
	c := newCursor(b, data)
	for {
		ok, err := c.next()
		if err != nil {
			return b.describe(err)
		}
		if !ok {
			return nil
		}
		s.rec = Record{
			Offset: base + Offset(c.f.offsetDelta), Timestamp: baseTime + c.f.timestampDelta,
			Key: c.f.key.of(data), Value: c.f.value.of(data),
			headers: c.f.headers.of(data), headerCount: c.f.headerCount,
		}
		if logAppend {
			s.rec.Timestamp = maxTime
		}
		if !fn(&s.rec) {
			return nil
		}
	}
}

// FirstAtOrAfter finds the first record whose offset is at least from and whose timestamp is at least ts. All records of a
// LogAppendTime batch have its maximum timestamp. The records of a control batch never match.
func (b Batch) FirstAtOrAfter(ts int64, from Offset) (o Offset, t int64, ok bool, err error) {
	if b.IsControl() || b.MaxTimestamp() < ts || b.LastOffset() < from || b.RecordCount() == 0 {
		return NoOffset, NoTimestamp, false, nil
	}
	if b.IsLogAppendTime() && b.dense() {
		return max(b.BaseOffset(), from), b.MaxTimestamp(), true, nil
	}
	s := getScratch()
	defer s.release()
	data, err := s.records(b, MaxDecompressedBytes)
	if err != nil {
		return NoOffset, NoTimestamp, false, b.describe(err)
	}
	c := newCursor(b, data)
	for {
		more, err := c.next()
		if err != nil || !more {
			return NoOffset, NoTimestamp, false, b.describe(err)
		}
		o, t := b.BaseOffset()+Offset(c.f.offsetDelta), b.BaseTimestamp()+c.f.timestampDelta
		if b.IsLogAppendTime() {
			t = b.MaxTimestamp()
		}
		if o >= from && t >= ts {
			return o, t, true, nil
		}
	}
}

// OffsetOfMaxTimestamp finds the first of the records with the batch's largest timestamp. It is NoOffset and NoTimestamp for a
// batch of control records, of none, or of records without timestamps.
func (b Batch) OffsetOfMaxTimestamp() (Offset, int64, error) {
	if b.IsControl() || b.MaxTimestamp() <= NoTimestamp {
		return NoOffset, NoTimestamp, nil
	}
	o, t, ok, err := b.FirstAtOrAfter(b.MaxTimestamp(), b.BaseOffset())
	if ok || err != nil {
		return o, t, err
	}
	return b.slowOffsetOfMaxTimestamp()
}

// slowOffsetOfMaxTimestamp serves batches whose header still tells the maximum of records that compaction took out.
func (b Batch) slowOffsetOfMaxTimestamp() (Offset, int64, error) {
	o, t := NoOffset, NoTimestamp
	err := b.Each(func(r *Record) bool {
		if r.Timestamp > t {
			o, t = r.Offset, r.Timestamp
		}
		return true
	})
	return o, t, err
}

// dense tells whether every offset of the batch has a record.
func (b Batch) dense() bool { return b.RecordCount() == b.LastOffsetDelta()+1 }

// describe adds to an error which batch it is about.
func (b Batch) describe(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("batch of %d bytes at offset %d: %w", len(b), b.BaseOffset(), err)
}

// Check tells whether stored bytes are one whole batch: length, magic, CRC and the header's counts (R1). It does not look at
// the records: they are what Validate accepted when the CRC is right.
func (b Batch) Check() error {
	if len(b) < HeaderSize {
		return fmt.Errorf("%w: %d bytes, a header takes %d", ErrShort, len(b), HeaderSize)
	}
	switch n := int64(b.i32(8)) + lengthOffset; {
	case n > int64(len(b)):
		return b.describe(fmt.Errorf("%w: the length field counts %d bytes", ErrShort, n))
	case n != int64(len(b)):
		return b.describe(fmt.Errorf("%w: the length field counts %d bytes", ErrMalformed, n))
	case b.Magic() != magicV2:
		return b.describe(fmt.Errorf("%w: magic %d", ErrMalformed, b.Magic()))
	case !b.CRCValid():
		return b.describe(ErrChecksum)
	case b.LastOffsetDelta() < 0 || b.RecordCount() < 0 || int64(b.RecordCount()) > int64(b.LastOffsetDelta())+1:
		return b.describe(fmt.Errorf("%w: %d records with last offset delta %d", ErrMalformed, b.RecordCount(), b.LastOffsetDelta()))
	}
	return nil
}
