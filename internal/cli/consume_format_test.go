// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFormat(t *testing.T) {
	r := &kgo.Record{Topic: "logs", Partition: 2, Offset: 41, LeaderEpoch: 7, Key: []byte("k"), Value: []byte("value"), Timestamp: time.UnixMilli(1226262975007),
		Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}}}
	null := &kgo.Record{Timestamp: time.UnixMilli(0)}
	for format, want := range map[string][2]string{
		`%s`:               {"value", ""},
		`%S/%K`:            {"5/1", "-1/-1"},
		`%R`:               {"\x00\x00\x00\x05", "\xff\xff\xff\xff"},
		`%t-%p@%o e%e`:     {"logs-2@41 e7", "-0@0 e0"},
		`%T %D`:            {"1226262975007 2008-11-09T20:36:15.007Z", "0 1970-01-01T00:00:00.000Z"},
		`[%h]`:             {"[a=1,b=NULL]", "[]"},
		`100%% \t\\\x41%k`: {"100% \t\\Ak", "100% \t\\A"},
		``:                 {"", ""},
	} {
		f, err := compileFormat(format)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		for i, rec := range []*kgo.Record{r, null} {
			if got := string(f([]byte("+"), rec)); got != "+"+want[i] {
				t.Errorf("%s: %q, want %q", format, got, "+"+want[i])
			}
		}
	}
	for _, bad := range []string{`%`, `%z`, `\`, `\q`, `\x4`, `\xgg`} {
		if _, err := compileFormat(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestHistogram(t *testing.T) {
	h := new(histogram)
	for i := 1; i <= 100_000; i++ {
		h.add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]float64{0.5: 50_000, 0.99: 99_000, 0.999: 99_900, 1: 100_000} {
		got := float64(h.quantile(q).Microseconds())
		if got < want || got > want*(1+1.0/subBuckets) {
			t.Errorf("p%g is %.0f µs, want %.0f", q*100, got, want)
		}
	}
	if new(histogram).quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	h.add(1 << 62) // nothing is too long
	if got := h.quantile(1); got < 1<<61 {
		t.Errorf("the longest is %v", got)
	}
}

func TestBuckets(t *testing.T) {
	for _, us := range []int64{0, 1, 127, 128, 129, 255, 256, 1000, 1<<40 + 12345, 1<<62 - 1} {
		b := bucketOf(us)
		if top := highest(b); top < us || bucketOf(top) != b || bucketOf(top+1) == b {
			t.Errorf("%d µs falls into bucket %d, which ends at %d", us, b, top)
		}
	}
}
