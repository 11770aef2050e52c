// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// DB is one data directory: the log's files, a Pebble database that says what lies where in them, and the logs of the partitions.
type DB struct {
	dir     string
	o       Options
	fs      vfs.FS
	lock    *pebble.Lock
	found   []string    // names in dir before this Open
	discard atomic.Bool // Close is to remove what this Open made
	p       *pebble.DB
	storeID [16]byte
	disk    diskGuard

	files fileSet
	// head is where the log goes on.
	head struct {
		// mu is held while a frame is written, and by the syncer when the log has to go on elsewhere.
		mu            sync.Mutex
		file          *logFile
		at, allocated int64
		unsynced      []*commit
		repoint       *repoint
	}
	stuck     atomic.Int64 // operations on log files that were left alone
	synced    syncedTo
	appliedTo atomic.Uint64 // sequence of the last commit that Pebble has
	durableTo atomic.Uint64 // the last one that is synced, too
	flushedTo uint64        // the last one that needs no replay: Open's, then the reclaimer's

	// store is the log-like place in the queue for changes of the store's own keys.
	store    *Log
	identity atomic.Pointer[Identity]
	witness  atomic.Pointer[witness]
	stamp    atomic.Uint64

	wake     chan struct{}
	free     chan *commit
	toSync   chan *commit
	done     chan struct{} // closed when both goroutines are gone
	sequence uint64        // the committer's: number of the commit being gathered
	prepared chan preparedFile
	reclaim  chan struct{}
	stop     chan struct{} // closed when the committer and the syncer are gone
	// preparerDone and reclaimerDone are closed when these are.
	preparerDone, reclaimerDone chan struct{}

	readers sync.WaitGroup
	// active counts the readers that entered in an even and in an odd epoch: a file that was retired in one epoch has no readers
	// any more when those of that epoch have left. draining: the reclaimer wants to hear of the last one.
	active    [2]atomic.Int64
	draining  atomic.Bool
	closing   atomic.Bool
	failed    atomic.Bool
	abandoned atomic.Bool   // Pebble panicked: its locks may be held for ever
	gone      chan struct{} // closed when abandoned
	closeOnce sync.Once
	closeErr  error
	stats     stats

	mu struct {
		sync.Mutex
		logs         map[record.PartitionID]*Log
		small, large logList
		largeLast    bool
		epoch        uint64
		idle         bool
		closing      bool
		failed       bool
		queuedBytes  int64
		queuedOps    int
		freeOps      *op
		freeCount    int
	}
}

type witness struct {
	cluster    uint64
	revision   int64
	generation int64 // 0: written before generations were
}

// Open opens the store in dir, or makes one, and raises its boot count. Errors: ErrLocked, ErrCorrupt, ErrNewerFormat, ErrOlderFormat.
func Open(dir string, o Options) (*DB, error) {
	o = o.withDefaults()
	d := &DB{
		dir: dir, o: o, fs: o.FS,
		wake: make(chan struct{}, 1), free: make(chan *commit, maxInFlight), toSync: make(chan *commit, maxInFlight), done: make(chan struct{}),
		prepared: make(chan preparedFile), reclaim: make(chan struct{}, 1), stop: make(chan struct{}), gone: make(chan struct{}),
		preparerDone: make(chan struct{}), reclaimerDone: make(chan struct{}),
	}
	d.mu.epoch = 1
	d.synced.moved.L = &d.synced.mu
	if d.fs == nil {
		d.fs = vfs.Default
	}
	d.mu.logs = make(map[record.PartitionID]*Log)
	d.store = &Log{db: d}
	if err := d.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", dir, err)
	}
	found, err := d.fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list data directory %s: %w", dir, err)
	}
	d.found = found
	lock, err := pebble.LockDirectory(dir, d.fs)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: another process holds its LOCK file: %w", ErrLocked, dir, err)
	}
	d.lock = lock
	if err := d.open(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	for range maxInFlight {
		d.free <- d.newCommit()
	}
	go d.prepareLoop()
	go d.commitLoop()
	go d.syncLoop()
	go d.reclaimLoop()
	d.wakeReclaimer() // what the last run left
	return d, nil
}

func (d *DB) open() error {
	file, known, err := readStoreFile(d.fs, d.dir)
	if err == nil {
		err = file.checkManifest(d.fs, d.dir)
	}
	if err == nil {
		err = file.checkFailover(d.fs, d.o.WALFailoverDir)
	}
	if err == nil && d.o.WALFailoverDir != "" {
		err = d.fs.MkdirAll(d.o.WALFailoverDir, 0o755)
	}
	if err != nil {
		return openError(d.dir, err)
	}
	d.disk.open(d)
	if !known {
		if file, err = newStoreFile(d.fs, d.dir); err != nil {
			return openError(d.dir, err)
		}
	}
	d.storeID = file.storeID
	d.files = fileSet{fs: vfs.OnDiskFull(d.fs, d.disk.outOfSpace), dir: d.dir, second: d.o.WALFailoverDir, maxOpen: maxOpenFiles}
	if err := d.files.list(); err != nil {
		return openError(d.dir, err)
	}
	holding := &holdingFS{FS: d.fs, beforeManifest: d.synced.wait, manifest: file.manifest}
	po, closeCache := d.pebbleOptions(holding)
	defer closeCache()
	po.ErrorIfNotExists = file.boots > 0
	p, err := pebble.Open(d.dir, po)
	if err != nil {
		return openError(d.dir, err)
	}
	d.p = p
	if err := d.openLog(file, holding); err != nil {
		d.files.closeAll()
		return errors.Join(openError(d.dir, err), p.Close())
	}
	d.disk.keepReserve()
	return nil
}

// openLog replays the log, finds out who the store is, and goes on in a new file. Nothing is removed before all is known to be well.
func (d *DB) openLog(file storeFile, holding *holdingFS) error {
	if err := d.replay(file.manifest != ""); err != nil {
		return err
	}
	id := Identity{StoreID: file.storeID, Node: -1}
	if err := d.load(&id); err != nil {
		return err
	}
	if err := file.check(&id); err != nil {
		return err
	}
	if err := d.countLive(); err != nil {
		return err
	}
	if err := holding.trust(); err != nil {
		return err
	}
	f, err := d.files.create(false)
	if err != nil {
		return err
	}
	d.head.file = f
	return d.boot(&id)
}

// openError names the directory and makes corruption and newer formats ours.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrNewerFormat):
	case isNewerPebble(err):
		err = fmt.Errorf("%w: %w", ErrNewerFormat, err)
	case pebble.IsCorruptionError(err), errors.Is(err, os.ErrNotExist), errors.Is(err, pebble.ErrDBDoesNotExist):
		// Pebble reports a file that its manifest names and that is not there as missing; for us it is the same damage.
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("open data directory %s: %w", dir, err)
}

// load reads the store keys. A new store has none.
func (d *DB) load(id *Identity) error {
	format, found, err := d.get(keyFormat)
	if err != nil {
		return err
	}
	if !found {
		return d.mustBeEmpty()
	}
	return d.loadStore(format, id)
}

// boot raises boots, in the log first: the STORE file must never be ahead of it.
func (d *DB) boot(id *Identity) error {
	id.Boots++
	err := d.commitDirect(func(c *commit) error {
		if err := c.batch.Set(keyFormat, binary.BigEndian.AppendUint32(nil, storeFormat), nil); err != nil {
			return err
		}
		return c.batch.Set(keyIdentity, id.encode(), nil)
	})
	if err != nil {
		return fmt.Errorf("raise boots to %d: %w", id.Boots, err)
	}
	if err := (storeFile{storeID: id.StoreID, boots: id.Boots, failover: d.o.WALFailoverDir}).write(d.fs, d.dir); err != nil {
		return err
	}
	d.identity.Store(id)
	return nil
}

// loadStore reads an existing store's own keys.
func (d *DB) loadStore(format []byte, id *Identity) error {
	if len(format) != 4 {
		return fmt.Errorf("%w: store format has %d bytes", ErrCorrupt, len(format))
	}
	if n := binary.BigEndian.Uint32(format); n > storeFormat {
		return fmt.Errorf("%w: store format %d, this binary knows up to %d", ErrNewerFormat, n, storeFormat)
	}
	value, found, err := d.get(keyIdentity)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: no identity", ErrCorrupt)
	}
	if err := id.decode(value); err != nil {
		return err
	}
	if err := d.loadStamp(); err != nil {
		return err
	}
	value, found, err = d.get(keyWitness)
	if err != nil || !found {
		return err
	}
	if err := checkValue(keyWitness, value, 17); err != nil {
		return err
	}
	w := witness{cluster: binary.BigEndian.Uint64(value[1:]), revision: int64(binary.BigEndian.Uint64(value[9:]))}
	if len(value) >= 25 {
		w.generation = int64(binary.BigEndian.Uint64(value[17:]))
	}
	d.witness.Store(&w)
	return nil
}

func (d *DB) loadStamp() error {
	value, found, err := d.get(keyStamp)
	if err != nil || !found {
		return err
	}
	if err := checkValue(keyStamp, value, 9); err != nil {
		return err
	}
	d.stamp.Store(binary.BigEndian.Uint64(value[1:]))
	return nil
}

func (d *DB) mustBeEmpty() error {
	it, err := d.p.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	if it.First() {
		return fmt.Errorf("%w: keys but no store format; not a Varve data directory?", ErrCorrupt)
	}
	return it.Error()
}

func (d *DB) get(key []byte) (value []byte, found bool, err error) {
	v, closer, err := d.p.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value = append([]byte(nil), v...)
	return value, true, closer.Close()
}

// Close writes what is queued, waits for readers, and closes the store. Logs answer ErrClosed from its beginning on.
func (d *DB) Close() error {
	d.closeOnce.Do(func() { d.closeErr = d.close() })
	return d.closeErr
}

// Discard is Close, and removes a store that this Open made and that belongs to no node yet, before another process can open the directory. Any
// other stays.
func (d *DB) Discard() error {
	id := d.Identity()
	d.discard.Store(id.Boots == 1 && id.ClusterID == "")
	return d.Close()
}

// removeMade removes what was not there before. The lock is held.
func (d *DB) removeMade() error {
	names, err := d.fs.List(d.dir)
	for _, name := range names {
		if !slices.Contains(d.found, name) {
			err = errors.Join(err, d.fs.RemoveAll(d.fs.PathJoin(d.dir, name)))
		}
	}
	return err
}

func (d *DB) close() error {
	d.mu.Lock()
	d.mu.closing = true
	d.mu.Unlock()
	d.closing.Store(true)
	d.wakeCommitter()
	<-d.done
	close(d.stop)
	<-d.reclaimerDone
	<-d.preparerDone
	d.readers.Wait()
	if d.abandoned.Load() {
		return fmt.Errorf("close data directory %s: %w", d.dir, ErrFailed)
	}
	if d.hasFailed() {
		return errors.Join(fmt.Errorf("close data directory %s: %w", d.dir, ErrFailed), d.closeFailed())
	}
	err := d.applyRepoint(math.MaxUint64)
	if err == nil {
		err = d.checkpoint()
	}
	// The commits' batches are idle now; closing them gives their memory back.
	for len(d.free) > 0 {
		c := <-d.free
		err = errors.Join(err, c.batch.Close())
	}
	err = errors.Join(err, d.p.Close())
	d.files.seal(d.head.file)
	d.files.closeAll()
	if id := d.identity.Load(); err == nil {
		if err := (storeFile{storeID: id.StoreID, boots: id.Boots, failover: d.o.WALFailoverDir}).markClosed(d.fs, d.dir); err != nil {
			d.o.Logger.Warn("the directory is closed, but not noted as closed", "dir", d.dir, "error", err)
		}
	}
	if err == nil && d.discard.Load() {
		err = d.removeMade()
	}
	err = errors.Join(err, d.lock.Close())
	if err != nil {
		return fmt.Errorf("close data directory %s: %w", d.dir, err)
	}
	return nil
}

// closeFailed gives the directory back after a failure, and makes nothing durable. A flush of Pebble's that needs a sync that will
// never be is abandoned.
func (d *DB) closeFailed() error {
	closed := make(chan error, 1)
	go func() { closed <- d.p.Close() }()
	select {
	case err := <-closed:
		d.files.closeAll()
		return errors.Join(err, d.lock.Close())
	case <-d.gone:
		return nil
	}
}

// abandon notes that Pebble's locks may be held for ever.
func (d *DB) abandon() {
	if d.abandoned.CompareAndSwap(false, true) {
		close(d.gone)
	}
}

// checkpoint stores the high watermarks that changed since their logs last wrote one, and makes Pebble know the whole log, so
// that the next Open has nothing to replay.
func (d *DB) checkpoint() error {
	c := &commit{batch: d.p.NewBatch()}
	for _, l := range d.mu.logs {
		if l.q.opening || l.q.dropped || record.Offset(l.highWatermark.Load()) == l.w.meta.highWatermark {
			continue
		}
		if err := c.putMeta(l); err != nil {
			return err
		}
	}
	if err := d.p.Apply(c.batch, pebble.NoSync); err != nil {
		return err
	}
	if err := d.p.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return c.batch.Close()
}

// Partitions lists the partitions that have a log here, open or not, in key order.
func (d *DB) Partitions() (ids []record.PartitionID, err error) {
	slot, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(slot)
	it, err := d.p.NewIter(&pebble.IterOptions{LowerBound: []byte{spacePartition}, UpperBound: []byte{spacePartition + 1}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		key := it.Key()
		if len(key) < kindPrefixLen {
			return nil, fmt.Errorf("%w: partition key %x in %s", ErrCorrupt, key, d.dir)
		}
		p := prefix(key[:partitionPrefixLen])
		ids = append(ids, p.id())
		ok = it.SeekGE(p.kind(nil, math.MaxUint8))
	}
	if err := it.Error(); err != nil {
		return nil, openError(d.dir, err)
	}
	return ids, nil
}

// Drop removes a partition's log, open or not, durably. An open Log answers ErrClosed from then on.
func (d *DB) Drop(id record.PartitionID) error {
	r := &opRest{done: make(chan struct{})}
	d.mu.Lock()
	if d.mu.closing || d.mu.failed {
		d.mu.Unlock()
		return ErrClosed
	}
	l := d.mu.logs[id]
	if l == nil {
		l = &Log{db: d, id: id, prefix: makePrefix(id)}
		d.mu.logs[id] = l
	}
	if l.q.dropped || l.q.opening {
		d.mu.Unlock()
		return fmt.Errorf("drop %v: %w", id, ErrBusy)
	}
	l.q.dropped = true
	o := d.newOpLocked(l, opDrop, opOverhead)
	o.rest = r
	wake := d.enqueueLocked(o)
	d.mu.Unlock()
	if wake {
		d.wakeCommitter()
	}
	return r.wait()
}

func (d *DB) forget(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.logs[l.id] == l {
		delete(d.mu.logs, l.id)
	}
}
