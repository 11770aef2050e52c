// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"math/rand/v2"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MemFS is a disk in memory that remembers what was synced, for tests of the packages above, which must not import Pebble.
type MemFS struct{ fs *vfs.MemFS }

// NewMemFS makes an empty one.
func NewMemFS() *MemFS { return &MemFS{vfs.NewCrashableMem()} }

// FS is what Options.FS takes. beforeSync, if any, is called ahead of every sync of a file or directory.
func (m *MemFS) FS(beforeSync func()) vfs.FS {
	if beforeSync == nil {
		return m.fs
	}
	return &syncFS{FS: m.fs, before: beforeSync}
}

// StallingFS is FS whose look at the free space calls stall first, which may take its time: the committer does that between two
// batches and holds no lock. The same holds for the syncs of the log's files, which call slow first: what a frame holds can be read
// meanwhile. Other syncs must not take time in a bubble, since Pebble holds locks across some.
func (m *MemFS) StallingFS(beforeSync, stall, slow func()) vfs.FS {
	return &syncFS{FS: m.fs, before: beforeSync, stall: stall, slow: slow}
}

// FillingFS is FS with sizes: the disk has no space left while full says so.
func (m *MemFS) FillingFS(full func() bool) vfs.FS {
	return &sizedFS{FS: m.fs, full: full}
}

// sizedFS is a disk of 1 GiB.
type sizedFS struct {
	vfs.FS
	full func() bool
}

func (s *sizedFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	u := vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: 1 << 29, UsedBytes: 1 << 29}
	if s.full() {
		u.AvailBytes, u.UsedBytes = 0, u.TotalBytes
	}
	return u, nil
}

// Unsynced tells whether a power failure at this moment would lose something.
func (m *MemFS) Unsynced() bool {
	return m.fs.CrashClone(vfs.CrashCloneCfg{}).String() != m.fs.String()
}

// Crash returns the disk as a power failure at this moment could leave it: what was synced, and each block that was not with a
// probability of percent. m itself stays as it is, so that whoever still writes to it does no harm.
func (m *MemFS) Crash(percent int, seed uint64) *MemFS {
	return &MemFS{m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, uint64(percent)))})}
}

// syncFS calls before ahead of every sync of a file or directory.
type syncFS struct {
	vfs.FS
	before func()
	stall  func() // may be nil, as slow
	slow   func()
}

func (s *syncFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if s.stall != nil {
		s.stall()
	}
	return s.FS.GetDiskUsage(path)
}

func (s *syncFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &syncFile{f, s.before}, nil
}

func (s *syncFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.wrap(s.FS.Create(name, c))
}

func (s *syncFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.wrap(s.FS.OpenReadWrite(name, c, o...))
	if err == nil && s.slow != nil && strings.HasSuffix(name, logFileSuffix) {
		f = &slowFile{f, s.slow}
	}
	return f, err
}

func (s *syncFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.wrap(s.FS.ReuseForWrite(oldname, newname, c))
}

func (s *syncFS) OpenDir(name string) (vfs.File, error) { return s.wrap(s.FS.OpenDir(name)) }

// slowFile is a file of the log whose syncs take time.
type slowFile struct {
	vfs.File
	slow func()
}

func (f *slowFile) SyncData() error {
	f.slow()
	return f.File.SyncData()
}

type syncFile struct {
	vfs.File
	before func()
}

func (f *syncFile) Sync() error {
	f.before()
	return f.File.Sync()
}

func (f *syncFile) SyncData() error {
	f.before()
	return f.File.SyncData()
}

func (f *syncFile) SyncTo(n int64) (bool, error) {
	f.before()
	return f.File.SyncTo(n)
}
