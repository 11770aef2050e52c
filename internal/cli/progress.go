// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress redraws one line on a terminal; elsewhere it is silent.
type progress struct {
	w     io.Writer // nil: silent
	start time.Time
	last  time.Time
	drawn bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{start: time.Now()}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		p.w = w
	}
	return p
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// update draws at most every progressEvery.
func (p *progress) update(records, bytes int64) {
	if p.w == nil {
		return
	}
	now := time.Now()
	if now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.drawn = now, true
	rate := float64(bytes) / now.Sub(p.start).Seconds()
	fmt.Fprintf(p.w, "\r\x1b[K%d records, %s, %s/s", records, formatBytes(float64(bytes)), formatBytes(rate))
}

// clear removes the line before something else is written.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func formatBytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", n, units[i])
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}
