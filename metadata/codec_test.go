// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

func FuzzEscapeID(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "a%2Fb", "%", "ü", "\x00\xff", "default", "~"} {
		f.Add(s, "a")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := EscapeID(a), EscapeID(b)
		if strings.ContainsAny(ea, "/~") {
			t.Errorf("%q becomes %q", a, ea)
		}
		if back, err := UnescapeID(ea); err != nil || back != a {
			t.Errorf("%q becomes %q becomes %q, %v", a, ea, back, err)
		}
		if a != b && (ea == eb || strings.HasPrefix(ea+"/", eb+"/")) {
			t.Errorf("the key part of %q is a prefix of that of %q", b, a)
		}
		if c, d := configName(ConfigGroup, a), configName(ConfigGroup, b); a != b && c == d {
			t.Errorf("entities %q and %q have one key", a, b)
		}
		e := QuotaEntity{User: QuotaPart{QuotaNamed, a}, IP: QuotaPart{QuotaNamed, b}}
		if back, err := parseQuotaName(quotaName(e)); err != nil || back != e {
			t.Errorf("quota entity %+v becomes %+v, %v", e, back, err)
		}
		if e, err := parseQuotaName(a); err == nil && quotaName(e) != a {
			t.Errorf("%q is accepted for %+v", a, e)
		}
		// Whatever is accepted is what EscapeID makes.
		if id, err := UnescapeID(a); err == nil && EscapeID(id) != a {
			t.Errorf("%q is accepted for %q", a, id)
		}
	})
}

// FuzzDecode: no value makes a decoder panic, ask for unbacked memory or accept what it would not write.
func FuzzDecode(f *testing.F) {
	f.Add(encodeLeader(&LeaderState{Node: 1, Epoch: 2}, UUID{1}))
	f.Add(encodeISR(&ISRState{Members: []ISRMember{{Node: 1}}, ELR: []ELRMember{{Node: 2}}, HWFloor: 7}, UUID{1}))
	f.Add(encodeHead(&Head{TieredEnd: 5, Pages: [][]byte{{1}}, EpochChain: []record.EpochStart{{Epoch: 1, Start: 2}}}, UUID{1}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, value []byte) {
		kv := &KeyValue{Value: value}
		op := opOf(value)
		if s, err := decodeLeader(kv); err == nil {
			if again, err := decodeLeader(&KeyValue{Value: encodeLeader(&s, op)}); err != nil || again != s {
				t.Errorf("leader %+v becomes %+v, %v", s, again, err)
			}
		}
		if s, err := decodeISR(kv); err == nil {
			if again, err := decodeISR(&KeyValue{Value: encodeISR(&s, op)}); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("isr %+v becomes %+v, %v", s, again, err)
			}
		}
		if h, err := decodeHead(kv); err == nil {
			if again, err := decodeHead(&KeyValue{Value: encodeHead(&h, op)}); err != nil || len(again.Pages) != len(h.Pages) {
				t.Errorf("head %+v becomes %+v, %v", h, again, err)
			}
		}
		_, _ = decodeTopic(record.TopicID{}, kv)
		_, _ = decodeBroker(1, kv)
		_, _ = decodeName(value)
		_, _ = decodeConfig(value)
		_, _ = decodeQuota(value)
		_, _ = decodeLoad(value)
		_, _ = decodeIntent(UUID{}, kv)
		_, _ = decodeGC(UUID{}, kv)
	})
}

func TestValuesAreSmallAndComeBack(t *testing.T) {
	op := newUUID()
	isr := ISRState{
		Members: []ISRMember{{1, 1 << 40, newUUID()}, {2, 7, newUUID()}, {3, 8, newUUID()}}, ELR: []ELRMember{{4, newUUID()}}, HWFloor: 1 << 40,
	}
	b := encodeISR(&isr, op)
	if got, err := decodeISR(&KeyValue{Value: b, ModRevision: 9}); err != nil || got.Rev != 9 || !reflect.DeepEqual(got.Members, isr.Members) ||
		!reflect.DeepEqual(got.ELR, isr.ELR) || got.HWFloor != isr.HWFloor || len(b) > 120 {
		t.Errorf("isr of %d bytes: %+v, %v", len(b), got, err)
	}
	leader := LeaderState{Node: 3, Incarnation: 1 << 40, Epoch: 1 << 20, UncleanEpoch: 5}
	b = encodeLeader(&leader, op)
	if got, err := decodeLeader(&KeyValue{Value: b}); err != nil || got != leader || len(b) > 40 {
		t.Errorf("leader of %d bytes: %+v, %v", len(b), got, err)
	}
	head := Head{TieredEnd: 1 << 40, LogStart: 1 << 39, TieredBytes: 1 << 45, FoldedEnd: 5, Count: 6, Pages: [][]byte{{1, 2}, {3}},
		EpochChain: []record.EpochStart{{Epoch: 1, Start: 2}, {Epoch: 3, Start: 4}}}
	b = encodeHead(&head, op)
	if got, err := decodeHead(&KeyValue{Value: b}); err != nil || !reflect.DeepEqual(got, head) || len(b) > 70 {
		t.Errorf("head of %d bytes: %+v, %v", len(b), got, err)
	}
	if opOf(b) != op {
		t.Error("the operation id is not where it is looked for")
	}
	gc := GCRecord{Attempt: op, Keys: []string{"a"}, UploadID: "u", NotBefore: time.UnixMilli(5), Reason: "r"}
	if got, err := decodeGC(op, &KeyValue{Value: encodeGC(&gc, op)}); err != nil || !reflect.DeepEqual(got, gc) {
		t.Errorf("gc record: %+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, {1}, {0, 1, 2}, append(b, 0), b[:len(b)-1]} {
		if _, err := decodeHead(&KeyValue{Value: bad}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x is read as a head: %v", bad, err)
		}
	}
}

func TestEpochChain(t *testing.T) {
	var more []record.EpochStart
	for i := range maxEpochChain + 5 {
		more = append(more, record.EpochStart{Epoch: record.Epoch(i), Start: record.Offset(10 * i)})
	}
	got := extendChain(more[:3], more, 0)
	if len(got) != maxEpochChain || got[len(got)-1] != more[len(more)-1] {
		t.Errorf("%d epochs, last %+v", len(got), got[len(got)-1])
	}
	// The epoch that holds the log start stays.
	if got = extendChain(more[:5], nil, 25); len(got) != 3 || got[0].Epoch != 2 {
		t.Errorf("trimmed to %+v", got)
	}
}

// TestShards compares the persistent map with plain ones: every version keeps what it had, and a diff is the difference.
func TestShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			s shards[int, int]
			m map[int]int
		}
		versions := []version{{m: map[int]int{}}}
		for range rapid.IntRange(1, 20).Draw(t, "edits") {
			base := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "base")]
			next := version{base.s, maps.Clone(base.m)}
			mark := new(editMark)
			for range rapid.IntRange(0, 10).Draw(t, "steps") {
				k := rapid.IntRange(0, 30).Draw(t, "key")
				if rapid.Bool().Draw(t, "put") {
					v := rapid.IntRange(1, 5).Draw(t, "value")
					next.s.put(k, v, mark)
					next.m[k] = v
				} else {
					next.s.remove(k, mark)
					delete(next.m, k)
				}
			}
			versions = append(versions, next)
		}
		for _, v := range versions {
			got := map[int]int{}
			v.s.each(func(k, x int) bool { got[k] = x; return true })
			if !maps.Equal(got, v.m) || v.s.len() != len(v.m) {
				t.Fatalf("has %v (%d), want %v", got, v.s.len(), v.m)
			}
			for _, w := range versions {
				undo := maps.Clone(w.m)
				diffShards(&v.s, &w.s, func(k, old, new int) {
					if old == new || v.m[k] != old || w.m[k] != new {
						t.Fatalf("difference of %d: %d to %d", k, old, new)
					}
					if undo[k] = old; old == 0 {
						delete(undo, k)
					}
				})
				if !maps.Equal(undo, v.m) {
					t.Fatalf("differences taken back give %v, want %v", undo, v.m)
				}
			}
		}
	})
}
