// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var at = part{cut, 0}

// good is a history without a fault in it: ten records of an idempotent producer in batches of two, acknowledged, read twice while
// they came and once in the end; the log start moved to 2.
func good() *history {
	h := newHistory()
	h.promises = promises
	for i := range int64(10) {
		h.sends = append(h.sends, &send{
			id: fmt.Sprint("p-", i), p: at, producer: 1, order: int(i), timestamp: 1000 + 10*i, hash: uint64(i), invoked: 100 * i, returned: 100*i + 50, outcome: stored, offset: i,
		})
	}
	h.fetches = append(h.fetches,
		goodFetch(h, 0, 4, 4, 500, false), goodFetch(h, 4, 10, 10, 1100, false), goodFetch(h, 2, 10, 10, 2000, true))
	h.deletes = append(h.deletes, &deletion{p: at, to: 2, invoked: 600, returned: 700, ok: true, low: 2})
	for _, f := range h.fetches[1:] {
		f.logStart = 2
	}
	h.lookups = []lookup{
		{p: at, timestamp: earliest, invoked: 100, returned: 200, offset: 0},
		{p: at, timestamp: latest, invoked: 100, returned: 200, offset: 1},
		{p: at, timestamp: latest, invoked: 2100, returned: 2200, offset: 10},
		{p: at, timestamp: 1045, invoked: 2100, returned: 2200, offset: 5, found: 1050, epoch: 3},
		{p: at, timestamp: 2000, invoked: 2100, returned: 2200, offset: -1, found: -1},
		{p: at, timestamp: maxTimestamp, invoked: 2100, returned: 2200, offset: 9, found: 1090, epoch: 3},
		{p: at, timestamp: 1045, invoked: 2100, returned: 2200, code: 6, offset: -1},
	}
	h.ends = []epochEnd{{p: at, node: 1, asked: 2, leads: 3, invoked: 2100, epoch: 2, end: 0}, {p: at, node: 1, asked: 3, leads: 4, invoked: 2100, epoch: 3, end: 10}}
	h.epochs = []seenEpoch{{at, 1, 0, 10, 2, 3}, {at, 1, 20, 30, 2, 3}, {at, 2, 40, 50, 2, 3}}
	return h
}

func goodFetch(h *history, from, to, hw, invoked int64, last bool) *fetch {
	f := &fetch{p: at, node: 1, epoch: 3, offset: from, invoked: invoked, returned: invoked + 10, hw: hw, stable: hw, last: last}
	for o := from; o < to; o += 2 {
		b := batch{base: o, last: o + 1, epoch: 3, hash: uint64(o)}
		for i := o; i < o+2; i++ {
			s := h.sends[i]
			b.records = append(b.records, observed{i, s.id, s.timestamp, s.hash})
		}
		f.batches = append(f.batches, b)
	}
	return f
}

func TestGoodHistory(t *testing.T) {
	for _, f := range check(good()) {
		t.Error(f)
	}
}

// TestBadHistories: each planted fault is found, under the rule that it breaks.
func TestBadHistories(t *testing.T) {
	for _, bad := range []struct {
		what, rule string
		spoil      func(*history)
	}{
		{"the last acknowledged records are gone", "S1", func(h *history) {
			f := h.fetches[2]
			f.batches, f.hw, f.stable = f.batches[:3], 8, 8
			h.fetches[1].batches, h.fetches[1].hw, h.fetches[1].stable = nil, 8, 8
			h.lookups = nil
		}},
		{"another record is where one was acknowledged", "S1", func(h *history) { h.sends[5].offset, h.sends[6].offset = 6, 5 }},
		{"two records are acknowledged at one offset", "S2", func(h *history) { h.sends[5].offset = 4 }},
		{"an offset has another value the second time", "S2", func(h *history) {
			h.fetches[0].batches[1].records[0].id = "p-1"
		}},
		{"a record that nobody sent", "S3", func(h *history) { h.sends[9].id = "other" }},
		{"a refused record is there", "S3", func(h *history) { h.sends[9].outcome, h.sends[9].err = refused, errors.New("refused") }},
		{"a record with another value", "S3", func(h *history) { h.sends[9].hash++ }},
		{"a record with another time", "S3", func(h *history) { h.sends[9].timestamp++ }},
		{"a later send has a lower offset", "S4", func(h *history) {
			h.sends[7].invoked, h.sends[7].returned = 2000, 2010
		}},
		{"a producer's records are out of order", "S4", func(h *history) { h.sends[6].order, h.sends[7].order = 7, 6 }},
		{"a record twice", "S5", func(h *history) {
			for _, f := range h.fetches[1:] {
				b := &f.batches[len(f.batches)-1]
				b.records[1].id, b.records[1].hash, b.records[1].timestamp = "p-8", 8, 1080
			}
		}},
		{"the high watermark goes back within an epoch", "S6", func(h *history) { h.fetches[2].invoked, h.fetches[2].returned, h.fetches[0].hw = 300, 310, 4 }},
		{"the end goes back", "S6", func(h *history) { h.lookups[2].offset = 0 }},
		{"the log start goes back", "S6", func(h *history) { h.fetches[2].logStart = 0 }},
		{"the stable offset is above the high watermark", "S6", func(h *history) { h.fetches[2].stable = 11 }},
		{"what was read is gone in the end", "S7", func(h *history) {
			for _, s := range h.sends[8:] {
				s.outcome = unknown
			}
			f := h.fetches[2]
			f.batches, f.hw, f.stable = f.batches[:3], 8, 8
		}},
		{"a node's metadata goes back", "S8", func(h *history) { h.epochs[1].epoch = 2 }},
		{"an epoch has two leaders", "S8", func(h *history) { h.epochs[2].leader = 1 }},
		{"an epoch in the log goes back", "S8", func(h *history) {
			for _, f := range h.fetches[1:] {
				f.batches[len(f.batches)-1].epoch = 2
			}
		}},
		{"an epoch ends too early", "S8", func(h *history) { h.ends[1].end = 8 }},
		{"an epoch ends too late", "S8", func(h *history) { h.ends[0].end = 4 }},
		{"a later epoch than was asked for", "S8", func(h *history) { h.ends[0].epoch = 3 }},
		{"a gap in the end", "S10", func(h *history) {
			f := h.fetches[2]
			f.batches = append(f.batches[:1:1], f.batches[2:]...)
		}},
		{"a batch with other bytes", "S12", func(h *history) { h.fetches[2].batches[1].hash++ }},
		{"a time lookup finds a later record", "S13", func(h *history) { h.lookups[3].offset, h.lookups[3].found = 6, 1060 }},
		{"a time lookup finds an earlier record", "S13", func(h *history) { h.lookups[3].offset, h.lookups[3].found = 4, 1040 }},
		{"a time lookup tells another time", "S13", func(h *history) { h.lookups[3].found++ }},
		{"a time lookup tells another epoch", "S13", func(h *history) { h.lookups[3].epoch++ }},
		{"a time lookup finds nothing", "S13", func(h *history) { h.lookups[3].offset = -1 }},
		{"a time lookup finds what is not there", "S13", func(h *history) { h.lookups[3].offset = 12 }},
		{"not the largest time", "S13", func(h *history) { h.lookups[5].offset, h.lookups[5].found = 8, 1080 }},
		{"a deleted record is read", "S19", func(h *history) {
			f := goodFetch(h, 0, 2, 10, 3000, false)
			f.logStart = 2
			h.fetches = append(h.fetches, f)
		}},
		{"the log start does not follow a deletion", "S19", func(h *history) {
			h.deletes[0].to, h.deletes[0].low = 4, 4
		}},
		{"a deletion answers less than it was asked", "S19", func(h *history) { h.deletes[0].low = 1 }},
		{"more is deleted than was asked", "S20", func(h *history) {
			for _, f := range h.fetches[1:] {
				f.logStart = 3
			}
		}},
		{"a record of an earlier topic of that name", "S25", func(h *history) { h.sends[9].p.topic = cut + "1" }},
		{"a broken batch", "S26", func(h *history) { h.fetches[0].batches[0].broken = "checksum" }},
		{"a fetch skips", "S27", func(h *history) { h.fetches[1].offset = 3 }},
		{"a fetch begins too early", "S27", func(h *history) { h.fetches[1].offset = 6 }},
		{"a gap in a fetch", "S27", func(h *history) {
			f := h.fetches[1]
			f.batches = append(f.batches[:1:1], f.batches[2:]...)
		}},
		{"a fetch gives more than is committed", "S27", func(h *history) { h.fetches[0].hw, h.fetches[0].stable = 3, 3 }},
		{"what is there is out of range", "S27", func(h *history) {
			h.fetches = append(h.fetches, &fetch{p: at, node: 1, epoch: 3, offset: 8, invoked: 3000, returned: 3010, code: codeOutOfRange, hw: -1, stable: -1, logStart: -1})
		}},
		{"an error with an offset", "S28", func(h *history) { h.lookups[6].offset = 0 }},
		{"an end of -1 without an error", "S28", func(h *history) { h.lookups[2].offset = -1 }},
		{"an acknowledgement without an offset", "S28", func(h *history) { h.sends[3].offset = -1 }},
		{"a partition that nobody could read", "V1", func(h *history) { h.fetches = h.fetches[:2] }},
		{"a note of the run", "run", func(h *history) { h.note("broken") }},
	} {
		t.Run(strings.ReplaceAll(bad.what, " ", "-"), func(t *testing.T) {
			h := good()
			bad.spoil(h)
			found := check(h)
			for _, f := range found {
				if strings.HasPrefix(f, bad.rule+":") {
					return
				}
			}
			t.Errorf("not found under %s; found: %q", bad.rule, found)
		})
	}
}

// TestExcused: what is no promise is no finding.
func TestExcused(t *testing.T) {
	h := good()
	h.lost[at] = true
	h.fetches = nil
	if found := check(h); len(found) > 0 {
		t.Errorf("a partition whose only disk was lost: %q", found)
	}
	h = good()
	h.unread[at], h.fetches = true, h.fetches[:2]
	if found := check(h); len(found) > 0 {
		t.Errorf("a partition that could not be read, which the run has told: %q", found)
	}
	h = good()
	h.sends[9].outcome, h.sends[9].returned = unknown, never
	h.fetches[0].hw = 5 // a lower one in an earlier epoch
	h.fetches[1].epoch = 4
	if found := check(h); len(found) > 0 {
		t.Errorf("an unknown outcome: %q", found)
	}
}

// encoded is a batch of one record per key, as a node serves it.
func encoded(base int64, keys ...string) []byte {
	raw := kmsg.RecordBatch{FirstOffset: base, Magic: 2, LastOffsetDelta: int32(len(keys) - 1), NumRecords: int32(len(keys)), FirstTimestamp: 1000, MaxTimestamp: 1000 + int64(len(keys)-1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
	for i, k := range keys {
		r := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Key: []byte(k), Value: []byte("v")}
		body := r.AppendTo(nil)[1:] // its length, 0, is one byte
		raw.Records = append(binary.AppendVarint(raw.Records, int64(len(body))), body...)
	}
	data := raw.AppendTo(nil)
	binary.BigEndian.PutUint32(data[8:], uint32(len(data)-batchHead))
	binary.BigEndian.PutUint32(data[crcFrom-4:], crc32.Checksum(data[crcFrom:], castagnoli))
	return data
}

func TestDecode(t *testing.T) {
	data := append(encoded(7, "a", "b"), encoded(9, "c")...)
	got := decode(append(data, encoded(10, "cut off")[:70]...))
	if len(got) != 2 || got[0].broken != "" || got[1].broken != "" || got[0].base != 7 || got[0].last != 8 || got[1].records[0].id != "c" || got[0].records[1].timestamp != 1001 {
		t.Errorf("decoded %+v", got)
	}
	for what, spoil := range map[string]func([]byte) []byte{
		"magic":    func(b []byte) []byte { b[16] = 1; return b },
		"checksum": func(b []byte) []byte { b[len(b)-2]++; return b },
		"count":    func(b []byte) []byte { b[60]++; return summed(b) },
		"delta":    func(b []byte) []byte { b[26]++; b[60]++; return summed(b) },
		"largest":  func(b []byte) []byte { b[42]++; return summed(b) },
	} {
		if got := decode(spoil(encoded(7, "a", "b"))); len(got) != 1 || got[0].broken == "" {
			t.Errorf("a wrong %s is not found: %+v", what, got)
		}
	}
}

func summed(b []byte) []byte {
	binary.BigEndian.PutUint32(b[crcFrom-4:], crc32.Checksum(b[crcFrom:], castagnoli))
	return b
}
