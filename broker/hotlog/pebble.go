// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleOptions is the configuration; DESIGN.md has the measurements behind the numbers.
func (d *DB) pebbleOptions(fs vfs.FS) (po *pebble.Options, closeCache func()) {
	cache := pebble.NewCache(d.o.CacheBytes)
	po = &pebble.Options{
		FS:   vfs.OnDiskFull(fs, d.disk.outOfSpace),
		Lock: d.lock,
		// Explicit, so that a newer Pebble does not change what is on disk by itself.
		FormatMajorVersion:          pebble.FormatValueSeparation,
		Cache:                       cache,
		MemTableSize:                uint64(d.o.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       8,
		L0CompactionFileThreshold:   8,
		L0StopWritesThreshold:       1000,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		// The log's files are the write-ahead log: a batch is applied when its frame is written.
		DisableWAL:    true,
		Logger:        &pebbleLogger{d},
		EventListener: d.listener(),
	}
	// One file, and so one sync, per flush.
	po.TargetFileSizes[0] = 512 << 20
	po.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	po.EnsureDefaults()
	po.WithFSDefaults()
	return po, cache.Unref
}

func (d *DB) listener() *pebble.EventListener {
	log := d.o.Logger
	return &pebble.EventListener{
		BackgroundError: func(err error) { log.Warn("pebble background error", "dir", d.dir, "error", err) },
		// Pebble's own choice is to end the process. The read that met the damage fails with ErrCorrupt, and its owner decides.
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			log.Error("corrupt data", "dir", d.dir, "path", i.Path, "error", i.Details)
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			d.stats.slow.Add(1)
			log.Warn("disk slow", "dir", d.dir, "operation", i.String())
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			d.stats.stalls.Add(1)
			log.Warn("writes held back", "dir", d.dir, "reason", i.Reason)
		},
	}
}

func isNewerPebble(err error) bool {
	s := err.Error()
	return strings.Contains(s, "unknown format major version") || strings.Contains(s, "written in unknown format")
}

// pebbleLogger passes Pebble's words on. Where Pebble calls Fatalf it counts on not returning.
type pebbleLogger struct{ d *DB }

func (p *pebbleLogger) Infof(format string, args ...any) {
	if p.d.o.Logger.Enabled(context.Background(), slog.LevelDebug) {
		p.d.o.Logger.Debug("pebble: "+fmt.Sprintf(format, args...), "dir", p.d.dir)
	}
}

func (p *pebbleLogger) Errorf(format string, args ...any) {
	p.d.o.Logger.Warn("pebble: "+fmt.Sprintf(format, args...), "dir", p.d.dir)
}

func (p *pebbleLogger) Fatalf(format string, args ...any) {
	p.d.abandon()
	p.d.fail(fmt.Errorf("%w: %s", ErrFailed, fmt.Sprintf(format, args...)))
	// Only a test's Options.Fatal returns. This goroutine holds Pebble's locks: going on would break Pebble, ending it would free them.
	select {}
}
