// SPDX-License-Identifier: Apache-2.0

package txn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/internal/golden"
	"github.com/varve/varve/record"
)

// TestStories runs testdata/*.txt.
func TestStories(t *testing.T) {
	golden.Stories(t, func(t *testing.T) func([]string) []string {
		s := &story{now: time.Unix(1000, 0), ids: 1000}
		return func(words []string) []string { return s.step(t, words) }
	})
}

// story is one transactional id. A producer is written ID/EPOCH, "-" is nobody; partitions are a0, a1, b0 …
type story struct {
	t   *Txn
	now time.Time
	ids int64
}

func producer(t *testing.T, word string) Producer {
	if word == "-" {
		return Nobody
	}
	id, epoch, _ := strings.Cut(word, "/")
	i, err := strconv.ParseInt(id, 10, 64)
	e, err2 := strconv.ParseInt(epoch, 10, 16)
	if err != nil || err2 != nil {
		t.Fatalf("no producer: %q", word)
	}
	return Producer{ID: i, Epoch: int16(e)}
}

func partitions(words []string) (list []record.PartitionID, groups []string) {
	for _, w := range words {
		if g, ok := strings.CutPrefix(w, "group="); ok {
			groups = append(groups, g)
			continue
		}
		list = append(list, record.PartitionID{Topic: record.TopicID{w[0]}, Index: int32(w[1] - '0')})
	}
	return list, groups
}

func version(word string) int8 {
	if word == "v1" {
		return Classic
	}
	return Bumping
}

func (s *story) fresh() int64 {
	if s.t != nil && s.t.State != Dead && !s.t.Exhausted() {
		return record.NoProducerID
	}
	return s.ids + 1
}

func (s *story) step(t *testing.T, words []string) []string {
	var next *Txn
	var err error
	switch words[0] {
	case "new":
		next = New(s.now, s.fresh(), time.Minute)
	case "epoch": // brings the id close to its end
		e := producer(t, "0/"+words[1]).Epoch
		s.t.Epoch = e
		return nil
	case "init":
		next, err = s.t.Init(s.now, producer(t, words[1]), time.Minute, s.fresh())
	case "add":
		list, groups := partitions(words[3:])
		next, err = s.t.Add(s.now, producer(t, words[2]), version(words[1]), list, groups...)
	case "verify":
		list, groups := partitions(words[2:])
		err = s.t.verify(producer(t, words[1]), list, groups)
	case "commit", "abort":
		next, err = s.t.End(s.now, producer(t, words[2]), words[0] == "commit", version(words[1]), s.fresh())
	case "force":
		next = s.t.Abort(s.now)
	case "complete":
		next = s.t.Complete(s.now)
	case "expire":
		next = s.t.Expire(s.now, time.Hour)
	case "pass":
		d, perr := time.ParseDuration(words[1])
		if perr != nil {
			t.Fatal(perr)
		}
		s.now = s.now.Add(d)
		if at := s.t.Deadline(); !at.IsZero() && !s.now.Before(at) {
			return []string{"the transaction's time is over"}
		}
		return nil
	default:
		t.Fatalf("no such step: %q", words)
	}
	var out []string
	if next != nil {
		again, derr := Decode(next.Encode())
		if next.State != Dead && (derr != nil || again.describe() != next.describe()) {
			t.Fatalf("%s is read as %v, %v", next.describe(), again, derr)
		}
		if next.ID > s.ids || next.Next > s.ids {
			s.ids++
		}
		s.t = next
		out = append(out, next.describe())
	}
	switch {
	case err != nil:
		out = append(out, "refused: "+err.Error())
	case words[0] == "init", words[0] == "commit", words[0] == "abort":
		out = append(out, fmt.Sprintf("answer %d/%d", s.t.Answer().ID, s.t.Answer().Epoch))
	case next == nil:
		out = append(out, "nothing changes")
	}
	return out
}

func (t *Txn) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d/%d", t.State, t.ID, t.Epoch)
	if t.Before != NoEpoch {
		fmt.Fprintf(&b, " from %d", t.Before)
	}
	if t.Previous != record.NoProducerID {
		fmt.Fprintf(&b, " after %d", t.Previous)
	}
	if t.Next != record.NoProducerID {
		fmt.Fprintf(&b, " then %d", t.Next)
	}
	if t.Bumped {
		b.WriteString(" bumped")
	}
	for _, p := range t.Partitions {
		fmt.Fprintf(&b, " %c%d", p.Topic[0], p.Index)
	}
	for _, g := range t.Groups {
		fmt.Fprintf(&b, " group=%s", g)
	}
	return b.String()
}

func TestDecodeRefuses(t *testing.T) {
	whole := New(time.Unix(7, 0), 5, time.Minute)
	whole.Groups, whole.Partitions = []string{"g"}, []record.PartitionID{{Index: 3}}
	value := whole.Encode()
	for n := range value {
		if got, err := Decode(value[:n]); n < len(value)-1 && err == nil && len(got.Partitions) == 1 || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes of %d: %v, %v", n, len(value), got, err)
		}
	}
	newer := append([]byte{format + 1}, value[1:]...)
	if _, err := Decode(newer); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a newer format: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(New(time.Unix(7, 0), 5, time.Minute).Encode())
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := Decode(value)
		if err != nil {
			return
		}
		if again, err := Decode(got.Encode()); err != nil || again.describe() != got.describe() {
			t.Errorf("%s becomes %v, %v", got.describe(), again, err)
		}
	})
}
