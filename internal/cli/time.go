// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// localLayouts are the forms of TIME that carry no zone, longest first.
var localLayouts = []string{"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04", "2006-01-02"}

const timeForms = "RFC 3339 (2024-05-01T14:03:07Z), \"2006-01-02 15:04:05\" (local zone), @unixms, or relative (-2h)"

// moment is a TIME argument and how it was read, so that an answer can say so.
type moment struct {
	time time.Time
	// zone explains where the zone came from when the argument did not carry it.
	zone string
}

// parseTime reads a TIME argument as of now. Zone-less forms are read in loc.
func parseTime(arg string, now time.Time, loc *time.Location) (moment, error) {
	switch {
	case strings.HasPrefix(arg, "@"):
		ms, err := strconv.ParseInt(arg[1:], 10, 64)
		if err != nil {
			return moment{}, fmt.Errorf("time %q: @ must be followed by milliseconds since 1970", arg)
		}
		return moment{time: time.UnixMilli(ms).In(loc)}, nil
	case strings.HasPrefix(arg, "-"), strings.HasPrefix(arg, "+"):
		d, err := parseRelative(arg)
		if err != nil {
			return moment{}, err
		}
		return moment{time: now.Add(d).In(loc)}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, arg); err == nil {
		return moment{time: t}, nil
	}
	for _, layout := range localLayouts {
		if t, err := time.ParseInLocation(layout, arg, loc); err == nil {
			name, _ := t.Zone()
			return moment{time: t, zone: "read in the local zone, " + name}, nil
		}
	}
	return moment{}, fmt.Errorf("time %q is none of %s", arg, timeForms)
}

// parseRelative is a Go duration that also knows days.
func parseRelative(arg string) (time.Duration, error) {
	number, isDays := strings.CutSuffix(arg, "d")
	if isDays {
		days, err := strconv.ParseFloat(number, 64)
		if err == nil {
			return time.Duration(days * 24 * float64(time.Hour)), nil
		}
	} else if d, err := time.ParseDuration(arg); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("relative time %q is not like -90s, -2h or -7d", arg)
}

func (m moment) String() string {
	s := formatTime(m.time)
	if m.zone != "" {
		s += " (" + m.zone + ")"
	}
	return s
}

// formatTime shows a time with the milliseconds that Kafka keeps.
func formatTime(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

// formatMillis shows a record timestamp in the local zone; Kafka's -1 is no timestamp.
func formatMillis(ms int64) string {
	if ms < 0 {
		return ""
	}
	return formatTime(time.UnixMilli(ms))
}

// positionKind tells how a --from or --to argument names a place in a log.
type positionKind int8

const (
	atEarliest positionKind = iota
	atLatest
	atOffset
	atTime
)

// position is a place in every partition of a topic.
type position struct {
	kind   positionKind
	offset int64
	at     moment
}

// parsePosition reads earliest|latest|OFFSET|TIME. A bare number is an offset.
func parsePosition(arg string, now time.Time, loc *time.Location) (position, error) {
	switch arg {
	case "earliest":
		return position{kind: atEarliest}, nil
	case "latest":
		return position{kind: atLatest}, nil
	}
	if o, err := strconv.ParseInt(arg, 10, 64); err == nil && o >= 0 {
		return position{kind: atOffset, offset: o}, nil
	}
	m, err := parseTime(arg, now, loc)
	if err != nil {
		return position{}, fmt.Errorf("%q is not earliest, latest, an offset or a time: %s", arg, timeForms)
	}
	return position{kind: atTime, at: m}, nil
}
