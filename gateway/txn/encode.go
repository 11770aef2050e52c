// SPDX-License-Identifier: Apache-2.0

package txn

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/varve/varve/record"
)

// format is the first byte of an encoded Txn.
const format = 1

// Encode is the value to store; docs/formats/metadata.md describes it.
func (t *Txn) Encode() []byte {
	b := make([]byte, 0, 64+20*len(t.Partitions))
	bumped := byte(0)
	if t.Bumped {
		bumped = 1
	}
	b = append(b, format, byte(t.State), byte(t.Version), bumped)
	for _, v := range []int64{
		t.ID, int64(t.Epoch), int64(t.Before), t.Previous, t.Next, t.Timeout.Milliseconds(), millis(t.Started), millis(t.Updated),
	} {
		b = binary.AppendVarint(b, v)
	}
	b = binary.AppendVarint(b, int64(len(t.Groups)))
	for _, g := range t.Groups {
		b = binary.AppendVarint(b, int64(len(g)))
		b = append(b, g...)
	}
	for i := 0; i < len(t.Partitions); {
		topic := t.Partitions[i].Topic
		n := i
		for n < len(t.Partitions) && t.Partitions[n].Topic == topic {
			n++
		}
		b = append(b, topic[:]...)
		b = binary.AppendVarint(b, int64(n-i))
		for ; i < n; i++ {
			b = binary.AppendVarint(b, int64(t.Partitions[i].Index))
		}
	}
	return b
}

func millis(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	return at.UnixMilli()
}

func timeOf(millis int64) time.Time {
	if millis < 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis)
}

// reader reads an encoded Txn; the first fault sticks.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(n int64) []byte {
	if n < 0 || n > int64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// Decode reads what Encode wrote.
func Decode(value []byte) (*Txn, error) {
	r := reader{b: value}
	head := r.take(4)
	if r.bad || head[0] == 0 {
		return nil, fmt.Errorf("%w: cut short", ErrCorrupt)
	}
	if head[0] > format {
		return nil, fmt.Errorf("%w: it has format %d, this binary reads up to %d: upgrade varve", ErrCorrupt, head[0], format)
	}
	t := &Txn{State: State(head[1]), Version: int8(head[2]), Bumped: head[3] == 1}
	t.ID, t.Epoch, t.Before = r.varint(), int16(r.varint()), int16(r.varint())
	t.Previous, t.Next = r.varint(), r.varint()
	t.Timeout = time.Duration(r.varint()) * time.Millisecond
	t.Started, t.Updated = timeOf(r.varint()), timeOf(r.varint())
	for n := r.varint(); n > 0 && !r.bad; n-- {
		t.Groups = append(t.Groups, string(r.take(r.varint())))
	}
	for !r.bad && len(r.b) > 0 {
		var topic record.TopicID
		copy(topic[:], r.take(int64(len(topic))))
		for n := r.varint(); n > 0 && !r.bad; n-- {
			t.Partitions = append(t.Partitions, record.PartitionID{Topic: topic, Index: int32(r.varint())})
		}
	}
	if r.bad || t.State >= Dead {
		return nil, fmt.Errorf("%w: %d bytes that do not read as one", ErrCorrupt, len(value))
	}
	return t, nil
}
