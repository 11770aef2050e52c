// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The STORE file says in plain text, outside Pebble, which store the directory holds and how often it was opened. It exists
// because Pebble takes a missing database for a new one and a damaged tail of its manifest for a torn write: it would open an
// older or an empty database and remove the files that it no longer knows. With the file such a directory is corrupt, and
// nothing is removed. A clean Close adds how long the manifest was. What the file cannot show is a tail of a manifest that was
// lost after a crash: only the log can. The file is there before the log and Pebble are, with no boots: its store id is part of each
// frame's checksum.
const (
	storeFileName   = "STORE"
	storeFileTemp   = "STORE.new"
	storeFileText   = "varve hot log\nformat %d\nstore %s\nboots %d\n"
	storeFileSecond = "failover %s\n"
	storeFileClosed = "closed %s %d\n"
)

type storeFile struct {
	storeID [16]byte
	boots   uint64
	// failover is the directory in which the log may go on, empty if there is none.
	failover string
	// manifest is the file name of Pebble's manifest at a clean Close, empty since the next Open.
	manifest      string
	manifestBytes int64
}

// readStoreFile returns found false in a directory that has none: a new one, or one whose first Open did not end.
func readStoreFile(fs vfs.FS, dir string) (s storeFile, found bool, err error) {
	name := fs.PathJoin(dir, storeFileName)
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err = errors.Join(err, f.Close()); err != nil {
		return s, false, fmt.Errorf("read %s: %w", name, err)
	}
	var format uint32
	var id string
	n, err := fmt.Sscanf(string(text), storeFileText, &format, &id, &s.boots)
	if n >= 1 && format < storeFormat {
		return s, true, fmt.Errorf("%w: store format %d in %s, this binary knows %d only: drain the node with the version that wrote it, then start with an empty directory",
			ErrOlderFormat, format, name, storeFormat)
	}
	if n >= 1 && format > storeFormat {
		return s, true, fmt.Errorf("%w: store format %d in %s, this binary knows up to %d", ErrNewerFormat, format, name, storeFormat)
	}
	b, hexErr := hex.DecodeString(id)
	if err = errors.Join(err, hexErr); err != nil || len(b) != len(s.storeID) {
		return s, true, fmt.Errorf("%w: %s cannot be read: %w", ErrCorrupt, name, err)
	}
	copy(s.storeID[:], b)
	if _, second, found := strings.Cut(string(text), "\nfailover "); found {
		s.failover, _, _ = strings.Cut(second, "\n")
	}
	if _, closed, found := strings.Cut(string(text), "\nclosed "); found {
		if _, err := fmt.Sscanf("closed "+closed, storeFileClosed, &s.manifest, &s.manifestBytes); err != nil {
			return s, true, fmt.Errorf("%w: %s cannot be read: %w", ErrCorrupt, name, err)
		}
	}
	return s, true, nil
}

// newStoreFile begins a store in a directory that holds none.
func newStoreFile(fs vfs.FS, dir string) (s storeFile, err error) {
	db, err := pebble.Peek(dir, fs)
	if err != nil {
		return s, err
	}
	names, err := fs.List(dir)
	if err != nil {
		return s, err
	}
	for _, name := range names {
		_, isLog := parseLogFileName(name)
		db.Exists = db.Exists || isLog
	}
	if db.Exists {
		return s, fmt.Errorf("%w: a database or a log, but no file %s; not a Varve data directory?", ErrCorrupt, storeFileName)
	}
	s.storeID = newStoreID()
	return s, s.write(fs, dir)
}

// write replaces the file so that a crash leaves the old or the new one.
func (s storeFile) write(fs vfs.FS, dir string) error {
	temp, name := fs.PathJoin(dir, storeFileTemp), fs.PathJoin(dir, storeFileName)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	_, err = fmt.Fprintf(f, storeFileText, storeFormat, hex.EncodeToString(s.storeID[:]), s.boots)
	if err == nil && s.failover != "" {
		_, err = fmt.Fprintf(f, storeFileSecond, s.failover)
	}
	if err == nil && s.manifest != "" {
		_, err = fmt.Fprintf(f, storeFileClosed, s.manifest, s.manifestBytes)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return syncDir(fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err = errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// checkFailover refuses to start without the directory that may hold the log's end, or, after a clean close, files of the log.
func (s storeFile) checkFailover(fs vfs.FS, second string) error {
	if s.failover == "" || s.failover == second {
		return nil
	}
	if s.manifest == "" {
		return fmt.Errorf("%w: start with %s as the failover directory, since the log may go on there", ErrFailoverDir, s.failover)
	}
	names, err := fs.List(s.failover)
	if errors.Is(err, os.ErrNotExist) {
		return nil // never needed, or removed; a file that is missed is found missing
	}
	if err != nil {
		return fmt.Errorf("list the failover directory of before: %w", err)
	}
	for _, name := range names {
		if _, ok := parseLogFileName(name); ok {
			return fmt.Errorf("%w: start with %s as the failover directory until no *.batches are left there: the log has files there", ErrFailoverDir, s.failover)
		}
	}
	return nil
}

// checkManifest finds a manifest that lost its tail while nobody had it open, before Pebble takes that for a torn write.
func (s storeFile) checkManifest(fs vfs.FS, dir string) error {
	if s.manifest == "" {
		return nil
	}
	info, err := fs.Stat(fs.PathJoin(dir, s.manifest))
	if err != nil {
		return err
	}
	if info.Size() < s.manifestBytes {
		return fmt.Errorf("%w: %s has %d bytes, %d when the directory was closed", ErrCorrupt, s.manifest, info.Size(), s.manifestBytes)
	}
	return nil
}

// markClosed notes the manifest of the database that was just closed. Without the note the next Open checks less.
func (s storeFile) markClosed(fs vfs.FS, dir string) error {
	db, err := pebble.Peek(dir, fs)
	if err != nil {
		return err
	}
	info, err := fs.Stat(db.ManifestFilename)
	if err != nil {
		return err
	}
	s.manifest, s.manifestBytes = fs.PathBase(db.ManifestFilename), info.Size()
	return s.write(fs, dir)
}

// check compares the file with what Pebble holds, before boots is raised there.
func (s storeFile) check(id *Identity) error {
	if s.storeID != id.StoreID || s.boots > id.Boots {
		return fmt.Errorf("%w: the STORE file names store %x after %d boots, the database store %x after %d: it lost its newest part",
			ErrCorrupt, s.storeID, s.boots, id.StoreID, id.Boots)
	}
	return nil
}

// holdingFS keeps the data files that Pebble would remove until the database is known to be the one the STORE file names, and
// the names that Pebble relies on in the order in which it gave them.
type holdingFS struct {
	vfs.FS
	// beforeManifest is called ahead of each write to a manifest: only by that what Pebble flushed becomes part of the database.
	beforeManifest func() error
	// manifest is the one that the STORE file names until this Open has replaced that file. A few Opens that fail before that make it
	// obsolete for Pebble; it goes with a later Open.
	manifest string
	mu       struct {
		sync.Mutex
		trusted bool
		held    []string
	}
}

// Unwrap lets Pebble find the file system below.
func (h *holdingFS) Unwrap() vfs.FS { return h.FS }

// Create syncs the directory ahead of a marker file. Pebble makes a manifest, then the marker that names it, then syncs the
// directory once: a power failure ahead of that could keep the second name and lose the first.
func (h *holdingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(path.Base(name), "marker.") {
		if err := syncDir(h.FS, path.Dir(name)); err != nil {
			return nil, err
		}
	}
	f, err := h.FS.Create(name, c)
	if err == nil && strings.HasPrefix(path.Base(name), "MANIFEST-") {
		f = &manifestFile{f, h.beforeManifest}
	}
	return f, err
}

// manifestFile waits ahead of each write.
type manifestFile struct {
	vfs.File
	before func() error
}

func (m *manifestFile) Write(b []byte) (int, error) {
	if err := m.before(); err != nil {
		return 0, err
	}
	return m.File.Write(b)
}

// Remove holds data files back until trust, and the manifest that the STORE file names.
func (h *holdingFS) Remove(name string) error {
	if h.manifest != "" && path.Base(name) == h.manifest {
		return nil
	}
	switch path.Ext(name) {
	case ".sst", ".blob", ".log":
		h.mu.Lock()
		if !h.mu.trusted {
			h.mu.held = append(h.mu.held, name)
			h.mu.Unlock()
			return nil
		}
		h.mu.Unlock()
	}
	return h.FS.Remove(name)
}

// trust removes what was held and what comes.
func (h *holdingFS) trust() error {
	h.mu.Lock()
	h.mu.trusted = true
	held := h.mu.held
	h.mu.held = nil
	h.mu.Unlock()
	for _, name := range held {
		if err := h.FS.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove obsolete %s: %w", name, err)
		}
	}
	return nil
}
