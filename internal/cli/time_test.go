// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"
)

func berlin(t *testing.T) *time.Location {
	t.Helper()
	// CET and CEST by rule, so that no time zone database is needed.
	return time.FixedZone("CET", 3600)
}

func TestParseTime(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for arg, want := range map[string]time.Time{
		"2024-05-01T14:03:07Z":      time.Date(2024, 5, 1, 14, 3, 7, 0, time.UTC),
		"2024-05-01T14:03:07.25Z":   time.Date(2024, 5, 1, 14, 3, 7, 250e6, time.UTC),
		"2024-05-01T14:03:07+02:00": time.Date(2024, 5, 1, 12, 3, 7, 0, time.UTC),
		"2024-05-01 14:03:07":       time.Date(2024, 5, 1, 13, 3, 7, 0, time.UTC),
		"2024-05-01T14:03:07":       time.Date(2024, 5, 1, 13, 3, 7, 0, time.UTC),
		"2024-05-01 14:03:07.5":     time.Date(2024, 5, 1, 13, 3, 7, 500e6, time.UTC),
		"2024-05-01 14:03":          time.Date(2024, 5, 1, 13, 3, 0, 0, time.UTC),
		"2024-05-01":                time.Date(2024, 4, 30, 23, 0, 0, 0, time.UTC),
		"@1714572187123":            time.UnixMilli(1714572187123),
		"@0":                        time.Unix(0, 0),
		"-2h":                       now.Add(-2 * time.Hour),
		"-90s":                      now.Add(-90 * time.Second),
		"-1h30m":                    now.Add(-90 * time.Minute),
		"-7d":                       now.AddDate(0, 0, -7),
		"-0.5d":                     now.Add(-12 * time.Hour),
		"+5m":                       now.Add(5 * time.Minute),
	} {
		got, err := parseTime(arg, now, berlin(t))
		if err != nil || !got.time.Equal(want) {
			t.Errorf("%s: %v %v, want %v", arg, got.time, err, want)
		}
		local := !strings.ContainsAny(arg, "Z+@") && arg[0] != '-'
		if said := strings.Contains(got.String(), "read in the local zone, CET"); said != local {
			t.Errorf("%s: the answer %q says that the zone was assumed: %v, want %v", arg, got, said, local)
		}
	}
	for _, arg := range []string{"", "yesterday", "@", "@x", "-", "-2", "-2x", "2024-13-01", "14:03", "2024-05-01 25:00:00", "2h"} {
		if got, err := parseTime(arg, now, time.UTC); err == nil {
			t.Errorf("%q is accepted as %v", arg, got.time)
		}
	}
}

func TestParsePosition(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for arg, want := range map[string]position{
		"earliest": {kind: atEarliest}, "latest": {kind: atLatest}, "0": {kind: atOffset}, "42": {kind: atOffset, offset: 42},
	} {
		if got, err := parsePosition(arg, now, time.UTC); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", arg, got, err, want)
		}
	}
	got, err := parsePosition("-1m", now, time.UTC)
	if err != nil || got.kind != atTime || got.at.time.Unix() != 999_940 {
		t.Errorf("-1m: %+v %v", got, err)
	}
	for _, arg := range []string{"", "first", "-5", "1.5"} {
		if got, err := parsePosition(arg, now, time.UTC); err == nil {
			t.Errorf("%q is accepted as %+v", arg, got)
		}
	}
}

func TestFormatMillis(t *testing.T) {
	if got := formatMillis(-1); got != "" {
		t.Errorf("no timestamp shows as %q", got)
	}
	if got := formatTime(time.UnixMilli(1226262975007).UTC()); got != "2008-11-09T20:36:15.007Z" {
		t.Error(got)
	}
}
