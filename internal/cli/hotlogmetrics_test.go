// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/broker/hotlog"
)

// TestHotLogMetrics: every series is there for each directory, and counts.
func TestHotLogMetrics(t *testing.T) {
	var logs []*hotlog.DB
	for range 2 {
		db, err := hotlog.Open(t.TempDir(), hotlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.SetIdentity("cluster", 1); err != nil { // a frame
			t.Fatal(err)
		}
		logs = append(logs, db)
	}
	c := newHotLogCollector(logs, []string{"/a", "/b"})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(c.metrics)+1 {
		t.Errorf("%d families", len(families))
	}
	for _, f := range families {
		if len(f.Metric) != len(logs) {
			t.Errorf("%s: %d series", f.GetName(), len(f.Metric))
		}
		for _, m := range f.Metric {
			dir := m.Label[0].GetValue()
			switch name := strings.TrimPrefix(f.GetName(), "varve_hotlog_"); name {
			case "sync_seconds":
				if h := m.GetHistogram(); h.GetSampleCount() == 0 || h.GetSampleSum() <= 0 || h.GetSampleSum() > time.Minute.Seconds() {
					t.Errorf("%s: %v", dir, h)
				}
			case "written_bytes_total":
				if m.GetCounter().GetValue() <= 0 {
					t.Errorf("%s: nothing written", dir)
				}
			case "available_bytes", "refuse_below_bytes", "disk_bytes":
				if m.GetGauge().GetValue() <= 0 {
					t.Errorf("%s: %s is %v", dir, name, m.GetGauge().GetValue())
				}
			}
		}
	}
}
