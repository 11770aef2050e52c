// SPDX-License-Identifier: Apache-2.0

package record

// span is a part of the decompressed records. n < 0 is Kafka's null.
type span struct{ at, n int }

func (s span) of(data []byte) []byte {
	if s.n < 0 {
		return nil
	}
	return data[s.at : s.at+s.n : s.at+s.n]
}

// fields tells where the parts of one record lie. Nothing is copied: validation looks at sizes only.
//
//	length varint | attributes i8 | timestampDelta varlong | offsetDelta varint | keyLength varint | key |
//	valueLength varint | value | headerCount varint | (keyLength varint | key | valueLength varint | value)…
type fields struct {
	timestampDelta int64
	offsetDelta    int32
	headerCount    int32
	key, value     span
	headers        span
}

// What parse finds wrong with a record.
const (
	faultEnd     = "the records end before the declared count is reached"
	faultLength  = "the record's length is malformed or points past the end"
	faultPrefix  = "the record's timestamp delta, offset delta or key length is malformed"
	faultKey     = "the record's key or value length is malformed or points past the record"
	faultValue   = "the record's value or header count is malformed or points past the record"
	faultHeaders = "the record's headers are malformed or point past the record"
	faultSize    = "the record's length differs from what its fields take"
	faultRest    = "bytes are left behind the declared count of records"
	faultDelta   = "the record's offset delta is out of order"
)

// quick reads an unsigned varint of one or two bytes at i. n is 0 for longer ones and close to the end. It is inlined.
func quick(b []byte, i int) (u uint32, n int) {
	if i+2 > len(b) {
		return 0, 0
	}
	w := uint32(b[i]) | uint32(b[i+1])<<8
	if w&0x80 == 0 {
		return w & 0x7f, 1
	}
	return w&0x7f | w>>1&0x3f80, 2 - int(w>>14&2)
}

func zigzag(u uint32) int32 { return int32(u>>1) ^ -int32(u&1) }

// parse reads the record at data[at:] and returns the index behind it, or what is wrong with the record. Nearly every record
// has short varints and no headers: those take a path without calls, and whatever is unusual about the others goes the careful way.
func (f *fields) parse(data []byte, at int) (next int, fault string) {
	size, n0 := quick(data, at)
	i := at + n0 + 1 // The attributes byte has no meaning yet.
	end := i - 1 + int(zigzag(size))
	time, n1 := quick(data, i)
	delta, n2 := quick(data, i+n1)
	i += n1 + n2
	key, n3 := quick(data, i)
	keyLen := int(zigzag(key))
	i += n3
	f.key = span{i, keyLen}
	i += max(keyLen, 0)
	value, n4 := quick(data, i)
	valueLen := int(zigzag(value))
	i += n4
	f.value = span{i, valueLen}
	i += max(valueLen, 0)
	if n0 == 0 || n1 == 0 || n2 == 0 || n3 == 0 || n4 == 0 || i >= len(data) || data[i] != 0 || i+1 != end {
		return f.parseAny(data, at)
	}
	f.timestampDelta, f.offsetDelta, f.headerCount, f.headers = int64(zigzag(time)), zigzag(delta), 0, span{end, 0}
	return end, ""
}

// parseAny is parse for any record, and the one that tells what is wrong.
func (f *fields) parseAny(data []byte, at int) (next int, fault string) {
	if at >= len(data) {
		return 0, faultEnd
	}
	size, i := varint(data, at)
	if i < 0 || size < 1 || int(size) > len(data)-i {
		return 0, faultLength
	}
	end := i + int(size)
	rec := data[:end]
	i++ // The attributes byte has no meaning yet.
	f.timestampDelta, i = varlong(rec, i)
	f.offsetDelta, i = varint(rec, i)
	n, i := varint(rec, i)
	if i < 0 {
		return 0, faultPrefix
	}
	f.key = span{i, int(n)}
	if n > 0 {
		i += int(n)
	}
	n, i = varint(rec, i)
	if i < 0 || int(n) > end-i {
		return 0, faultKey
	}
	f.value = span{i, int(n)}
	if n > 0 {
		i += int(n)
	}
	f.headerCount, i = varint(rec, i)
	if i < 0 || f.headerCount < 0 {
		return 0, faultValue
	}
	f.headers = span{i, end - i}
	for range f.headerCount {
		if _, _, i = header(rec, i); i < 0 {
			return 0, faultHeaders
		}
	}
	if i != end {
		return 0, faultSize
	}
	return end, ""
}

// header reads the header at rec[i:]. A header key is never null.
func header(rec []byte, i int) (key, value span, next int) {
	n, i := varint(rec, i)
	if i < 0 || n < 0 || int(n) > len(rec)-i {
		return key, value, -1
	}
	key = span{i, int(n)}
	n, i = varint(rec, i+int(n))
	if i < 0 || int(n) > len(rec)-i {
		return key, value, -1
	}
	value = span{i, int(n)}
	return key, value, i + max(int(n), 0)
}
