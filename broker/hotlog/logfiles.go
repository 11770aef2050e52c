// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFile is one file of the log. Its number is never given to another one; what is recycled gets a new number.
type logFile struct {
	number uint32
	name   string
	second bool // it lies in the failover directory

	// fileSet.mu guards the rest.
	live         int64  // bytes of batches in it that some log still holds
	size         int64  // bytes it takes on disk
	lastSequence uint64 // of the frames in it
	freedAt      uint64 // sequence of the last commit that made bytes of it dead
	sealed       bool
	sealedAt     time.Time
	notBefore    time.Time // no rewrite before: the last one moved nothing
	lent         bool      // a span of it was given out: it is never written over
	broken       bool      // it did not give what was sent from it: no more spans
	gone         bool      // it has no name any more, and is closed when its last span is released
	handle       vfs.File
	refs         int
	writes       int // of the refs: writes and syncs under way
	usedAt       uint64
}

// fileSet is what the log consists of, and the files that wait to be written over.
type fileSet struct {
	fs          vfs.FS
	dir, second string // second is the failover directory, if any

	mu        sync.Mutex
	byNumber  map[uint32]*logFile
	last      uint32      // the highest number given
	spare     []*logFile  // the one that was forgotten first comes first
	begun     []time.Time // when the files of the last spareFor were made
	open      int
	uses      uint64
	maxOpen   int
	gone      int   // files that are gone, but for spans
	goneBytes int64 // and what they take
	closed    bool  // nothing is kept open
}

const logFileSuffix = ".batches"

func logFileName(number uint32) string { return fmt.Sprintf("%08d%s", number, logFileSuffix) }

func parseLogFileName(name string) (number uint32, ok bool) {
	digits, found := strings.CutSuffix(name, logFileSuffix)
	if !found || len(digits) < 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && logFileName(uint32(n)) == name
}

// list finds the log's files.
func (s *fileSet) list() error {
	s.byNumber = make(map[uint32]*logFile)
	if err := s.listDir(s.dir, false); err != nil || s.second == "" {
		return err
	}
	return s.listDir(s.second, true)
}

func (s *fileSet) listDir(dir string, second bool) error {
	names, err := s.fs.List(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		number, ok := parseLogFileName(name)
		if !ok {
			continue
		}
		f := &logFile{number: number, name: s.fs.PathJoin(dir, name), second: second, sealed: true, lent: true} // by the process before, for all we know
		if other := s.byNumber[number]; other != nil {
			return fmt.Errorf("%w: %s and %s have the same number", ErrCorrupt, other.name, f.name)
		}
		info, err := s.fs.Stat(f.name)
		if err != nil {
			return err
		}
		f.size = info.Size()
		s.byNumber[number] = f
		s.last = max(s.last, number)
	}
	return nil
}

// sorted is all files by number.
func (s *fileSet) sorted() []*logFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := make([]*logFile, 0, len(s.byNumber))
	for _, f := range s.byNumber {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *logFile) int { return int(int64(a.number) - int64(b.number)) })
	return files
}

// create makes the next file, of a spare one if there is any, and makes its name durable: nothing that is acknowledged may lie
// under a name that a crash takes back. The handle is held by the caller.
func (s *fileSet) create(second bool) (*logFile, error) {
	dir := s.dir
	if second {
		dir = s.second
	}
	s.mu.Lock()
	s.begun = append(s.begun, time.Now())
	s.last++
	f := &logFile{number: s.last, name: s.fs.PathJoin(dir, logFileName(s.last)), second: second, refs: 1}
	var spare *logFile
	if n := len(s.spare); n > 0 && !second {
		spare, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	s.mu.Unlock()
	if spare != nil {
		f.size = spare.size
		if err := s.fs.Rename(spare.name, f.name); err != nil {
			return nil, fmt.Errorf("reuse log file: %w", err)
		}
	}
	h, err := s.fs.OpenReadWrite(f.name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("make log file: %w", err)
	}
	if err := syncDir(s.fs, dir); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	f.handle = h
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byNumber[f.number] = f
	s.open++
	return f, nil
}

// acquire gives the handle of a file, which release must give back.
func (s *fileSet) acquire(number uint32) (*logFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byNumber[number]
	if f == nil {
		return nil, fmt.Errorf("%w: log file %s is not there", ErrCorrupt, s.fs.PathJoin(s.dir, logFileName(number)))
	}
	s.holdLocked(f)
	if f.handle == nil {
		h, err := s.fs.Open(f.name)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if err != nil {
			f.refs--
			return nil, err
		}
		f.handle = h
		s.open++
		s.closeIdleLocked()
	}
	return f, nil
}

func (s *fileSet) holdLocked(f *logFile) {
	f.refs++
	s.uses++
	f.usedAt = s.uses
}

// busy notes that a write or a sync of the file begins, which may be left alone: till it ends the file stays.
func (s *fileSet) busy(f *logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(f)
	f.writes++
}

func (s *fileSet) idle(f *logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.refs--
	f.writes--
}

// wrote notes a frame in a file, and keeps its handle for the sync.
func (s *fileSet) wrote(f *logFile, end int64, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.size, f.lastSequence = max(f.size, end), sequence
	s.holdLocked(f)
}

func (s *fileSet) get(number uint32) *logFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byNumber[number]
}

func (s *fileSet) release(f *logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.refs--
	if f.refs == 0 && (f.gone || s.closed) {
		s.closeLocked(f)
	}
	s.closeIdleLocked()
}

// closeIdleLocked keeps the number of open files bounded: the handle that was not used for longest goes.
func (s *fileSet) closeIdleLocked() {
	for s.open > s.maxOpen {
		var oldest *logFile
		for _, f := range s.byNumber {
			if f.handle != nil && f.refs == 0 && (oldest == nil || f.usedAt < oldest.usedAt) {
				oldest = f
			}
		}
		if oldest == nil {
			return
		}
		s.closeLocked(oldest)
	}
}

// closeLocked closes a handle that nobody holds. What it was written for is synced, so its error tells nothing.
func (s *fileSet) closeLocked(f *logFile) {
	if f.handle != nil {
		_ = f.handle.Close()
		f.handle = nil
		s.open--
		if f.gone {
			s.gone--
			s.goneBytes -= f.size
		}
	}
}

// closeAll closes what nobody holds, and the rest when it is released: an operation that is stuck keeps its handle.
func (s *fileSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.byNumber {
		if f.refs == 0 {
			s.closeLocked(f)
		}
	}
}

// seal notes that nothing is written to the file any more.
func (s *fileSet) seal(f *logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.sealed, f.sealedAt = true, time.Now()
	f.refs--
}

// forget takes a file out of the set, once nobody can find anything in it, and removes it or, if it may be kept, makes it a spare, of
// which dropSpares leaves no more than are wanted. What was lent of it stays readable without a name.
func (s *fileSet) forget(f *logFile, keep bool) error {
	s.mu.Lock()
	delete(s.byNumber, f.number)
	if f.refs > 0 {
		f.gone = true
		s.gone++
		s.goneBytes += f.size
	} else {
		s.closeLocked(f)
	}
	if keep && !f.second && !f.lent {
		s.spare = append(s.spare, f)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	if err := s.fs.Remove(f.name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove log file: %w", err)
	}
	return nil
}

// usage is the bytes on disk of all files, and of the spare ones among them.
func (s *fileSet) usage() (all, spare int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.spare {
		spare += f.size
	}
	all = spare + s.goneBytes
	for _, f := range s.byNumber {
		all += f.size
	}
	return all, spare
}

// sparesWanted is how many spares are of use: what was begun lately may be begun again soon. If it is more than minSpareFiles, wait is how
// long it stays so.
func (s *fileSet) sparesWanted(now time.Time) (n int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.begun) > 0 && now.Sub(s.begun[0]) >= spareFor {
		s.begun = s.begun[1:]
	}
	if n = len(s.begun); n <= minSpareFiles {
		return minSpareFiles, 0
	}
	return n, spareFor - now.Sub(s.begun[0])
}

// dropSpares removes the files that wait to be written over but for the newest, so many and so many bytes of them at most. It tells how
// many are left.
func (s *fileSet) dropSpares(keep int, bytes int64) (left int, err error) {
	s.mu.Lock()
	first := len(s.spare)
	for first > 0 && left < keep && s.spare[first-1].size <= bytes {
		first--
		left++
		bytes -= s.spare[first].size
	}
	drop := s.spare[:first]
	s.spare = slices.Clone(s.spare[first:])
	s.mu.Unlock()
	for _, f := range drop {
		err = errors.Join(err, s.fs.Remove(f.name))
	}
	return left, err
}
