// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// drain reads a source to its end and shows each record.
func drain(s recordSource) ([]string, error) {
	var all []string
	for {
		r, err := s.next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, show(r))
	}
}

func show(r *kgo.Record) string {
	text := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	s := text(r.Key) + "=" + text(r.Value)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s:%s", h.Key, text(h.Value))
	}
	if !r.Timestamp.IsZero() {
		s += fmt.Sprintf(" @%d", r.Timestamp.UnixMilli())
	}
	return s
}

func expectRecords(t *testing.T, s recordSource, want ...string) {
	t.Helper()
	got, err := drain(s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func reader(s string) *bufio.Reader { return bufio.NewReaderSize(strings.NewReader(s), 16) } // the least size there is

func TestLines(t *testing.T) {
	expectRecords(t, &lineSource{in: reader("a\n\nb\r\nlast")}, `null="a"`, `null=""`, `null="b\r"`, `null="last"`)
	expectRecords(t, &lineSource{in: reader("")})
	long := strings.Repeat("x", 100)
	expectRecords(t, &lineSource{in: reader(long + "\n" + long)}, `null="`+long+`"`, `null="`+long+`"`)
	expectRecords(t, &lineSource{in: reader("k::v\nno key\n::\na::b::c\n"), separator: []byte("::")},
		`"k"="v"`, `null="no key"`, `""=""`, `"a"="b::c"`)
}

func TestLinesOwnTheirBytes(t *testing.T) {
	s := &lineSource{in: reader("first\nsecond\n")}
	first, _ := s.next()
	if _, err := s.next(); err != nil || string(first.Value) != "first" {
		t.Errorf("%q, %v", first.Value, err)
	}
}

func TestLineTooLong(t *testing.T) {
	in := bufio.NewReader(io.LimitReader(zeros{}, maxInputRecordBytes+1))
	if _, err := drain(&lineSource{in: in}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestLengthDelimited(t *testing.T) {
	frame := func(s string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s }
	expectRecords(t, &delimitedSource{in: strings.NewReader(frame("a\nb") + frame("") + frame("c"))}, `null="a\nb"`, `null=""`, `null="c"`)
	for _, bad := range []string{"\x00\x00", "\x00\x00\x00\x05abc", "\xff\xff\xff\xff"} {
		if got, err := drain(&delimitedSource{in: strings.NewReader(bad)}); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestJSONRecords(t *testing.T) {
	in := `{"key":"k","value":"v","timestamp":1700000000123,"headers":[{"key":"h","value":"x"},{"key":"n"}]}

{"value":{"a": [1, 2]}}
{"key":null,"value":null}
{"valueBase64":"/w==","keyBase64":"AAE=","timestamp":"2023-11-14T22:13:20Z"}
{"value":5}
`
	expectRecords(t, &jsonSource{in: bufio.NewReader(strings.NewReader(in))},
		`"k"="v" h:"x" n:null @1700000000123`, `null="{\"a\": [1, 2]}"`, `null=null`, `"\x00\x01"="\xff" @1700000000000`, `null="5"`)
	for _, bad := range []string{"x", "{}x", `{"valeu":"x"}`, `{"value":"a","valueBase64":"YQ=="}`, `{"key":"a","keyBase64":"YQ=="}`,
		`{"valueBase64":"?"}`, `{"timestamp":"now"}`, `[1]`} {
		if got, err := drain(&jsonSource{in: bufio.NewReader(strings.NewReader("\n" + bad))}); err == nil {
			t.Errorf("%s is read as %v", bad, got)
		} else if !strings.Contains(err.Error(), "line 2: ") {
			t.Errorf("%s: the error names no line: %v", bad, err)
		}
	}
}

// TestJSONRoundTrip: what consume --output json writes, produce --json reads.
func TestJSONRoundTrip(t *testing.T) {
	for _, r := range []*kgo.Record{
		{Key: []byte("k<&>"), Value: []byte("line\nü"), Topic: "t", Partition: 3, Offset: 9, Timestamp: time.UnixMilli(1234567890123)},
		{Value: []byte{0xff, 0, 1}, Key: []byte{0x80}, Timestamp: time.UnixMilli(0)},
		{Timestamp: time.UnixMilli(5), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("b")}, {Key: "n"}, {Key: "x", Value: []byte{0xfe}}}},
		{Key: []byte{}, Value: []byte{}, Timestamp: time.UnixMilli(6)},
		{Value: []byte(`{"not":"parsed"}`), Timestamp: time.UnixMilli(7)},
	} {
		line := appendJSON(nil, r)
		if bytes.Count(line, []byte("\n")) != 1 {
			t.Errorf("not one line: %q", line)
		}
		back, err := decodeJSONRecord(bytes.TrimSpace(line))
		if err != nil || show(back) != show(r) || back.Partition != r.Partition {
			t.Errorf("%s became %s (%v) by %s", show(r), show(back), err, line)
		}
	}
}

func TestEventTime(t *testing.T) {
	for _, c := range []struct {
		regex, layout, zone, line string
		want                      time.Time
	}{
		{`^(\d{6} \d{6})`, "060102 150405", "UTC", "081109 203615 148 INFO dfs", time.Date(2008, 11, 9, 20, 36, 15, 0, time.UTC)},
		{`^(\d{6}) (\d{6})`, "060102 150405", "UTC", "081109 203615 148", time.Date(2008, 11, 9, 20, 36, 15, 0, time.UTC)},
		{`^\S+ (\d+) `, "unix", "UTC", "- 1117838570 2005.06.03", time.Unix(1117838570, 0)},
		{`\d+\.\d+`, "unix", "UTC", "t=1117838570.25 x", time.Unix(1117838570, 250e6)},
		{`\d+`, "unixms", "UTC", "1117838570123", time.UnixMilli(1117838570123)},
		{`\[(.*?)\]`, "02/Jan/2006:15:04:05 -0700", "UTC", "x [10/Oct/2000:13:55:36 -0700] y", time.Date(2000, 10, 10, 20, 55, 36, 0, time.UTC)},
	} {
		e, err := eventTimeFlags{c.regex, c.layout, c.zone, missingFails}.build()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.of([]byte(c.line)); err != nil || !got.Equal(c.want) {
			t.Errorf("%q by %s: %v %v, want %v", c.line, c.regex, got, err, c.want)
		}
	}
}

// TestAssumedZone: the answer names the zone exactly where another one would have given other times.
func TestAssumedZone(t *testing.T) {
	for layout, line := range map[string]string{
		"unix": "1117838570", "unixms": "1117838570123", "060102 150405": "081109 203615", time.DateTime: "2024-05-01 14:03:07",
		time.RFC3339: "2024-05-01T14:03:07+02:00", "2006-01-02T15:04:05Z0700": "2024-05-01T14:03:07Z", time.RFC1123Z: "Mon, 02 Jan 2006 15:04:05 -0700",
		"2006-01-02 15:04 -07": "2024-05-01 14:03 +02", "2006-01-02 15:04 MST": "2024-05-01 14:03 CET", "2006-01-02T15:04:05Z": "2024-05-01T14:03:07Z",
	} {
		at := func(zone *time.Location) time.Time {
			e, err := eventTimeFlags{".*", layout, "UTC", missingFails}.build()
			if err != nil {
				t.Fatal(err)
			}
			e.zone = zone
			found, err := e.of([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		matters := !at(time.UTC).Equal(at(time.FixedZone("CET", 3600)))
		l := load{flags: &produceFlags{acks: "all", times: eventTimeFlags{".*", layout, "Local", missingFails}}}
		var out bytes.Buffer
		if err := l.result(1, time.Second, "").show(&out, ""); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "read as Local"); said != matters {
			t.Errorf("%q: the zone matters: %v, it is told: %v", layout, matters, said)
		}
	}
}

func TestEventTimeMissing(t *testing.T) {
	in := "head\n10 a\ncontinued\n20 b\n"
	build := func(missing string) recordSource {
		e, err := eventTimeFlags{`^\d+`, "unix", "UTC", missing}.build()
		if err != nil {
			t.Fatal(err)
		}
		return &lineSource{in: reader(in), times: e}
	}
	if _, err := drain(build(missingFails)); err == nil || !strings.Contains(err.Error(), "line 1: ") || !strings.Contains(err.Error(), "--time-missing") {
		t.Errorf("%v", err)
	}
	expectRecords(t, build(missingNow), `null="head"`, `null="10 a" @10000`, `null="continued"`, `null="20 b" @20000`)
	in = strings.TrimPrefix(in, "head\n")
	expectRecords(t, build(missingPrevious), `null="10 a" @10000`, `null="continued" @10000`, `null="20 b" @20000`)
}

// TestWarnOfTimeOnce: an event time beyond the retention is worth one line, however many records have it.
func TestWarnOfTimeOnce(t *testing.T) {
	old, fresh := time.Unix(1_000_000, 0), time.Now()
	for name, c := range map[string]struct {
		topic target
		times []time.Time
		want  int
	}{
		"older than retention":  {target{name: "logs", retention: time.Hour}, []time.Time{fresh, old, old, old}, 1},
		"kept for ever":         {target{name: "logs", retention: -1}, []time.Time{old, old}, 0},
		"within retention":      {target{name: "logs", retention: 24 * 365 * 100 * time.Hour}, []time.Time{old}, 0},
		"time of sending":       {target{name: "logs", retention: time.Hour}, []time.Time{{}, {}}, 0},
		"broker stamps arrival": {target{name: "logs", retention: -1, stampsArrival: true}, []time.Time{old, fresh}, 1},
	} {
		var out bytes.Buffer
		l := &load{topic: c.topic, warn: &out, progress: newProgress(&out)}
		for _, at := range c.times {
			l.warnOfTime(at)
		}
		if got := strings.Count(out.String(), "warning: "); got != c.want || strings.Count(out.String(), "\n") != c.want {
			t.Errorf("%s: %d warnings, want %d: %s", name, got, c.want, out.String())
		}
	}
}

func TestRetentionOf(t *testing.T) {
	for value, want := range map[string]time.Duration{"-1": -1, "": -1, "x": -1, "9223372036854775807": -1, "0": 0, "604800000": 7 * 24 * time.Hour} {
		if got := retentionOf(value); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// TestWrongJSONIsToldPlainly: what is wrong with a line is told without the names that Go has for it.
func TestWrongJSONIsToldPlainly(t *testing.T) {
	for line, want := range map[string]string{
		`{"partition":"x"}`:   "partition must be a whole number in range, not string",
		`{"headers":{}}`:      "headers must be a list, not object",
		`{"key":1}`:           "key must be a string, not number",
		`{"kay":"x"}`:         `unknown field "kay"`,
		`{"partition":1e400}`: "partition must be a whole number in range",
	} {
		_, err := decodeJSONRecord([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "json: ") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
