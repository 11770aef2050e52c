// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
)

var (
	windows = Windows{Num: 11, Size: time.Second}
	epoch   = time.Unix(1000, 0)
	dflt    = metadata.QuotaPart{Is: metadata.QuotaDefault}
)

// tableOf has one limit of a kind per entity.
func tableOf(k Kind, limits map[metadata.QuotaEntity]float64) *Table {
	t := &Table{}
	t.limits[k] = limits
	return t
}

func user(name string) metadata.QuotaEntity { return metadata.QuotaEntity{User: namedPart(name)} }

// TestPrecedence: the entities one by one, from the weakest on; each new one takes over (U1).
func TestPrecedence(t *testing.T) {
	limits := map[metadata.QuotaEntity]float64{}
	table := tableOf(Produce, limits)
	u, c := Client{User: "u", ID: "c"}, namedPart("c")
	if _, _, ok := table.Limit(Produce, u); ok {
		t.Error("a limit without a quota")
	}
	for i, step := range []struct {
		entity metadata.QuotaEntity
		shared Client // with whom
	}{
		{metadata.QuotaEntity{ClientID: dflt}, Client{ID: "c"}},
		{metadata.QuotaEntity{ClientID: c}, Client{ID: "c"}},
		{metadata.QuotaEntity{User: dflt}, Client{User: "u"}},
		{metadata.QuotaEntity{User: dflt, ClientID: dflt}, u},
		{metadata.QuotaEntity{User: dflt, ClientID: c}, u},
		{user("u"), Client{User: "u"}},
		{metadata.QuotaEntity{User: namedPart("u"), ClientID: dflt}, u},
		{metadata.QuotaEntity{User: namedPart("u"), ClientID: c}, u},
	} {
		limits[step.entity] = float64(i + 1)
		if limit, shared, ok := table.Limit(Produce, u); !ok || limit != float64(i+1) || shared != step.shared {
			t.Errorf("with %+v: limit %v shared as %+v, want %d as %+v", step.entity, limit, shared, i+1, step.shared)
		}
	}
	if limit, shared, _ := table.Limit(Produce, Client{User: "v", ID: "d"}); limit != 4 || shared != (Client{User: "v", ID: "d"}) {
		t.Errorf("a stranger: %v, %+v; want that of both defaults", limit, shared)
	}
	if _, _, ok := table.Limit(Fetch, u); ok || table.Has(Fetch) {
		t.Error("a quota of one kind counts for another")
	}
	var none *Table
	if _, _, ok := none.Limit(Produce, u); ok || none.Has(Produce) {
		t.Error("no table has a limit")
	}
}

func TestConnectionLimits(t *testing.T) {
	table := tableOf(Connection, map[metadata.QuotaEntity]float64{{IP: dflt}: 5, {IP: namedPart("10.0.0.1")}: 2})
	for address, want := range map[string]float64{"10.0.0.1": 2, "10.0.0.2": 5} {
		if limit, shared, ok := table.Limit(Connection, Client{User: address}); !ok || limit != want || shared.User != address {
			t.Errorf("%s: %v, %+v", address, limit, shared)
		}
	}
}

// send lets a client send pieces for so long, keeping the delays it is given, and tells how much went through.
func send(m *Meters, table *Table, k Kind, c Client, piece float64, from, until, every time.Duration) (sum float64, end time.Duration) {
	for from < until {
		d := m.Record(table, k, c, epoch.Add(from), piece)
		sum += piece
		from += max(d, every)
	}
	return sum, from
}

// TestRate: however fast pieces come, at first the burst that the empty windows allow is let through, then the quota. Pieces that are
// nearly as large as all windows, or larger, find the windows empty again after the delay that they brought about (U2).
func TestRate(t *testing.T) {
	const limit = 1000.0
	for piece, within := range map[float64]float64{1: 0.01, 37: 0.01, 1000: 0.05, 9000: 0.1, 30000: 0.5} {
		for _, every := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
			if piece/every.Seconds() < 2*limit {
				continue // slower than the quota: nothing to see
			}
			t.Run(fmt.Sprint(piece, every), func(t *testing.T) {
				m := NewMeters(epoch, windows, windows)
				table := tableOf(Produce, map[metadata.QuotaEntity]float64{user("u"): limit})
				c := Client{User: "u", ID: "any"}
				first, at := send(m, table, Produce, c, piece, 0, 30*time.Second, every)
				if most := limit*(at.Seconds()+float64(windows.Num)) + piece; first > most {
					t.Errorf("%v came in the first %s, at most %v", first, at, most)
				}
				began := at
				sum, at := send(m, table, Produce, c, piece, at, at+10*time.Minute, every)
				if got := sum / (at - began).Seconds(); math.Abs(got-limit) > limit*within {
					t.Errorf("%v per second, want %v", got, limit)
				}
				if d := m.Record(table, Produce, Client{User: "other"}, epoch.Add(at), 1e12); d != 0 {
					t.Errorf("a client without quota waits %s", d)
				}
			})
		}
	}
}

// TestRateAsKafka holds delays to those that Kafka's formula gives: (rate - limit) / limit * time covered.
func TestRateAsKafka(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Produce, map[metadata.QuotaEntity]float64{user("u"): 100})
	c := Client{User: "u"}
	for i, step := range []struct {
		at    time.Duration
		value float64
		want  time.Duration
	}{
		{0, 1000, 0},                          // 1000 in the 10 s that are covered at least: the limit
		{0, 500, 5 * time.Second},             // 150 per second over 10 s
		{5 * time.Second, 0, 5 * time.Second}, // five of the ten covered seconds stand in for windows yet to come
		{10 * time.Second, 0, 5 * time.Second},
		{11 * time.Second, 0, 0}, // the first sample is as old as all windows
		{100 * time.Second, 3000, 20 * time.Second},
	} {
		if got := m.Record(table, Produce, c, epoch.Add(step.at), step.value); got != step.want {
			t.Errorf("step %d: delay %s, want %s", i, got, step.want)
		}
	}
}

func TestRequestDelaysAreBounded(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Request, map[metadata.QuotaEntity]float64{user("u"): 1})
	if d := m.Record(table, Request, Client{User: "u"}, epoch, 1e6); d != windows.Size {
		t.Errorf("delay %s, want one window", d)
	}
	table = tableOf(Produce, map[metadata.QuotaEntity]float64{user("u"): 1e-9})
	if d := m.Record(table, Produce, Client{User: "u"}, epoch, 1e6); d != math.MaxInt32*time.Millisecond {
		t.Errorf("delay %s, want the longest that the protocol can say", d)
	}
}

func TestUnrecord(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Fetch, map[metadata.QuotaEntity]float64{user("u"): 100})
	c := Client{User: "u"}
	if d := m.Record(table, Fetch, c, epoch, 2000); d == 0 {
		t.Fatal("not limited")
	}
	m.Unrecord(table, Fetch, c, epoch, 2000)
	if d := m.Record(table, Fetch, c, epoch, 1000); d != 0 {
		t.Errorf("what was taken back counts: %s", d)
	}
	for at, want := range map[time.Duration]float64{0: 0, 5 * time.Second: 0, 11 * time.Second: 1000, time.Hour: 1000} {
		fresh := NewMeters(epoch, windows, windows)
		fresh.Record(table, Fetch, c, epoch, 1500)
		if room, whole, ok := fresh.Room(table, Fetch, c, epoch.Add(at)); !ok || room != want || whole != 1000 {
			t.Errorf("room after %s: %v of %v, %v; want %v of 1000", at, room, whole, ok, want)
		}
	}
	m.Record(table, Fetch, c, epoch, -400)
	if room, _, _ := m.Room(table, Fetch, c, epoch); room != 400 {
		t.Errorf("room %v, want 400", room)
	}
	if _, _, ok := m.Room(table, Fetch, Client{User: "v"}, epoch); ok {
		t.Error("a bound without a quota")
	}
}

// TestMutations: a bucket of eleven seconds' worth; a refused change uses nothing, one that is let through may be larger than what
// is left.
func TestMutations(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Mutation, map[metadata.QuotaEntity]float64{user("u"): 2})
	c := Client{User: "u"}
	if d := m.Admit(table, c, epoch, 22); d != 0 {
		t.Errorf("the whole bucket: %s", d)
	}
	if d := m.Admit(table, c, epoch, 3); d != 0 {
		t.Errorf("at zero: %s", d)
	}
	for range 2 {
		if d := m.Admit(table, c, epoch, 1); d != 1500*time.Millisecond {
			t.Errorf("three tokens short: %s", d)
		}
	}
	if d := m.Admit(table, c, epoch.Add(1500*time.Millisecond), 1); d != 0 {
		t.Errorf("after the delay: %s", d)
	}
	if d := m.Record(table, Mutation, c, epoch.Add(1500*time.Millisecond), 3); d != 2*time.Second {
		t.Errorf("recorded in any case: %s", d)
	}
	if d := m.Admit(table, Client{User: "v"}, epoch, 1e9); d != 0 {
		t.Errorf("without a quota: %s", d)
	}
}

// TestBounded: idle clients are forgotten, and too many at once share one meter (U3).
func TestBounded(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Produce, map[metadata.QuotaEntity]float64{{ClientID: dflt}: 100})
	at := epoch
	for i := range maxMeters + 500 {
		m.Record(table, Produce, Client{User: "u", ID: fmt.Sprint(i)}, at, 10)
	}
	if n, others := len(m.kinds[Produce].mu.meters), len(m.kinds[Produce].mu.overflow); n != maxMeters || others != 1 {
		t.Errorf("%d and %d meters, want %d and one for all others", n, others, maxMeters)
	}
	if d := m.Record(table, Produce, Client{User: "u", ID: "late"}, at, 10); d == 0 {
		t.Error("500 clients in one meter are not limited")
	}
	m.Record(table, Produce, Client{User: "u", ID: "later"}, at.Add(windows.span()), 10)
	if n := len(m.kinds[Produce].mu.meters) + len(m.kinds[Produce].mu.overflow); n != 1 {
		t.Errorf("%d meters after all windows, want the new one", n)
	}
	m.Record(table, Produce, Client{User: "u", ID: "last"}, at.Add(idleAfter+windows.span()), 10)
	if n := len(m.kinds[Produce].mu.meters); n != 1 {
		t.Errorf("%d meters after a long time, want the new one", n)
	}
	owing := tableOf(Mutation, map[metadata.QuotaEntity]float64{user("u"): 0.001})
	m.Record(owing, Mutation, Client{User: "u"}, at, 10)
	m.Record(owing, Mutation, Client{User: "u2"}, at.Add(2*idleAfter), 10)
	if d := m.Admit(owing, Client{User: "u"}, at.Add(2*idleAfter), 1); d == 0 {
		t.Error("who owes is forgotten")
	}
}

// TestOverflowByQuota: clients without a meter of their own share one with those of the same quota only (U3).
func TestOverflowByQuota(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	small := metadata.QuotaEntity{User: namedPart("small"), ClientID: dflt}
	table := tableOf(Produce, map[metadata.QuotaEntity]float64{{ClientID: dflt}: 1000, small: 1})
	for i := range maxMeters {
		m.Record(table, Produce, Client{User: "u", ID: fmt.Sprint(i)}, epoch, 1)
	}
	late, poor := Client{User: "u", ID: "late"}, Client{User: "small", ID: "c"}
	if d := m.Record(table, Produce, late, epoch, 9000); d != 0 {
		t.Errorf("below its quota: %s", d)
	}
	if d := m.Record(table, Produce, poor, epoch, 5); d != 0 {
		t.Errorf("below its quota, which is not the other's: %s", d)
	}
	if d := m.Record(table, Produce, Client{User: "small", ID: "d"}, epoch, 10); d != 5*time.Second {
		t.Errorf("one that shares it: %s", d)
	}
	got := map[string]float64{}
	m.Each(epoch, func(u Use) {
		if u.Client.User == "(others)" {
			got[u.Client.ID] = u.Rate
		}
	})
	if want := map[string]float64{"client-id=<default>": 900, "user=small,client-id=<default>": 1.5}; !maps.Equal(got, want) {
		t.Errorf("shown %v, want %v", got, want)
	}
}

func TestEach(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Produce, map[metadata.QuotaEntity]float64{user("u"): 100})
	m.Record(table, Produce, Client{User: "u", ID: "c"}, epoch, 1000)
	m.Record(table, Produce, Client{User: "u", ID: "d"}, epoch, 500)
	m.Record(table, Produce, Client{User: "u", ID: "d"}, epoch, 0)
	var got []Use
	m.Each(epoch, func(u Use) { got = append(got, u) })
	want := Use{Kind: Produce, Client: Client{User: "u"}, Rate: 150, Throttle: 5000}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	got = nil
	m.Each(epoch.Add(11*time.Second), func(u Use) { got = append(got, u) })
	if len(got) != 1 || got[0].Rate != 0 || got[0].Throttle != 0 {
		t.Errorf("afterwards %+v", got)
	}
}

// TestNoAllocations: a client that is known, or has no quota, costs none.
func TestNoAllocations(t *testing.T) {
	m := NewMeters(epoch, windows, windows)
	table := tableOf(Produce, map[metadata.QuotaEntity]float64{user("u"): 1e12})
	for _, c := range []Client{{User: "u", ID: "c"}, {User: "v", ID: "c"}} {
		at := epoch
		use := func() { m.Record(table, Produce, c, at, 10) }
		for range 20 {
			at = at.Add(windows.Size)
			use()
		}
		if n := testing.AllocsPerRun(100, use); n != 0 {
			t.Errorf("%+v: %v allocations", c, n)
		}
	}
}
