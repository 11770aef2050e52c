// SPDX-License-Identifier: Apache-2.0

package gateway

import "encoding/binary"

// encoder appends Kafka's primitives to a buffer. compact is set for flexible versions.
type encoder struct {
	b       []byte
	compact bool
}

func (e *encoder) i8(v int8)       { e.b = append(e.b, byte(v)) }
func (e *encoder) i16(v int16)     { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *encoder) i32(v int32)     { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) i64(v int64)     { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) uuid(v [16]byte) { e.b = append(e.b, v[:]...) }
func (e *encoder) uvarint(v uint32) {
	e.b = binary.AppendUvarint(e.b, uint64(v))
}

func (e *encoder) array(n int) {
	if e.compact {
		e.uvarint(uint32(n) + 1)
	} else {
		e.i32(int32(n))
	}
}

func (e *encoder) nullArray() {
	if e.compact {
		e.uvarint(0)
	} else {
		e.i32(-1)
	}
}

func (e *encoder) str(s string) {
	if e.compact {
		e.uvarint(uint32(len(s)) + 1)
	} else {
		e.i16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

// nullable writes "" as null: none of the fields it is used for tells the two apart.
func (e *encoder) nullable(s string) {
	switch {
	case s != "":
		e.str(s)
	case e.compact:
		e.uvarint(0)
	default:
		e.i16(-1)
	}
}

// size writes the length of a byte field whose bytes follow.
func (e *encoder) size(n int) {
	if e.compact {
		e.uvarint(uint32(n) + 1)
	} else {
		e.i32(int32(n))
	}
}

// noTags ends a structure that has no tagged fields.
func (e *encoder) noTags() {
	if e.compact {
		e.b = append(e.b, 0)
	}
}

// leaderTag writes the tagged field {leader id, leader epoch}.
func (e *encoder) leaderTag(tag uint32, id, epoch int32) {
	e.uvarint(tag)
	e.uvarint(4 + 4 + 1)
	e.i32(id)
	e.i32(epoch)
	e.noTags()
}

// endpoints writes the tagged field with the nodes that the answer names, and ends the structure.
func (e *encoder) endpoints(list []endpoint) {
	if !e.compact {
		return
	}
	if len(list) == 0 {
		e.noTags()
		return
	}
	e.uvarint(1) // one tagged field
	e.uvarint(0) // its tag
	field := encoder{compact: true}
	field.array(len(list))
	for _, n := range list {
		field.i32(int32(n.node))
		field.str(n.host)
		field.i32(n.port)
		field.nullable(n.rack)
		field.noTags()
	}
	e.uvarint(uint32(len(field.b)))
	e.b = append(e.b, field.b...)
}
