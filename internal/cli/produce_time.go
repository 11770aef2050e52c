// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Layouts that count from 1970. All others are Go's.
const (
	layoutUnix   = "unix"
	layoutUnixMs = "unixms"
)

// defaultZone is the zone of event times that do not carry one.
const defaultZone = "Local"

// What to do with a line in which no event time is found.
const (
	missingFails    = "fail"
	missingPrevious = "previous"
	missingNow      = "now"
)

// eventTime finds the time of an event in its line.
type eventTime struct {
	pattern  *regexp.Regexp
	layout   string
	zone     *time.Location
	missing  string
	previous time.Time
}

type eventTimeFlags struct {
	regex, layout, zone, missing string
}

// build returns nil when no event time is asked for.
func (f eventTimeFlags) build() (*eventTime, error) {
	if f.regex == "" {
		if f.layout != "" {
			return nil, usagef("--time-layout needs --time-regex, which finds the time in the line")
		}
		if f.zone != defaultZone || f.missing != missingFails {
			return nil, usagef("--time-zone and --time-missing need --time-regex, which finds the time in the line")
		}
		return nil, nil
	}
	if f.layout == "" {
		return nil, usagef("--time-regex needs --time-layout: a Go layout such as \"2006-01-02 15:04:05\", unix or unixms")
	}
	pattern, err := regexp.Compile(f.regex)
	if err != nil {
		return nil, usagef("--time-regex: %s", err)
	}
	zone, err := time.LoadLocation(f.zone)
	if err != nil {
		return nil, usagef("--time-zone %q: %s; write UTC, Local or a name such as Europe/Berlin", f.zone, err)
	}
	switch f.missing {
	case missingFails, missingPrevious, missingNow:
	default:
		return nil, usagef("--time-missing %q is not fail, previous or now", f.missing)
	}
	return &eventTime{pattern: pattern, layout: f.layout, zone: zone, missing: f.missing}, nil
}

// assumedZone is the zone that the times found are read in, "" where they carry their own. (The name of a zone is not enough for
// that: Go looks it up in the zone that is given.)
func (f eventTimeFlags) assumedZone() string {
	switch {
	case f.regex == "", f.layout == layoutUnix, f.layout == layoutUnixMs:
		return ""
	case strings.Contains(f.layout, "-07"), strings.Contains(f.layout, "Z07"): // all of Go's forms of an offset begin so
		return ""
	}
	return f.zone
}

// of returns the event time of a line. The text that is parsed is the regular expression's groups joined by one space, or its
// whole match when it has none.
func (e *eventTime) of(line []byte) (time.Time, error) {
	t, err := e.find(line)
	switch {
	case err == nil:
		e.previous = t
		return t, nil
	case e.missing == missingNow:
		return time.Time{}, nil
	case e.missing == missingPrevious && !e.previous.IsZero():
		return e.previous, nil
	}
	return time.Time{}, fmt.Errorf("%w; --time-missing previous|now accepts such lines", err)
}

func (e *eventTime) find(line []byte) (time.Time, error) {
	m := e.pattern.FindSubmatch(line)
	if m == nil {
		return time.Time{}, fmt.Errorf("--time-regex does not match %q", excerpt(line))
	}
	text := string(m[0])
	if len(m) > 1 {
		parts := make([]string, len(m)-1)
		for i, g := range m[1:] {
			parts[i] = string(g)
		}
		text = strings.Join(parts, " ")
	}
	switch e.layout {
	case layoutUnix:
		return parseUnix(text)
	case layoutUnixMs:
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is not milliseconds since 1970", text)
		}
		return time.UnixMilli(ms), nil
	}
	t, err := time.ParseInLocation(e.layout, text, e.zone)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q does not follow --time-layout %q", text, e.layout)
	}
	return t, nil
}

// parseUnix reads seconds with an optional decimal fraction, exactly.
func parseUnix(text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	nanos := int64(0)
	if err == nil && fraction != "" {
		nanos, err = strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not seconds since 1970", text)
	}
	return time.Unix(seconds, nanos), nil
}

func excerpt(line []byte) string {
	const most = 60
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}
