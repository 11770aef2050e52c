// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/segment"
)

func init() { poison = true }

// fakePartition is a partition over a slice. What it ever held stays in `all`, to compare with.
type fakePartition struct {
	t testing.TB

	mu       sync.Mutex
	all      []record.Batch
	chain    []record.EpochStart
	aborted  []segment.Aborted
	local    record.Offset // local start
	hw, lso  record.Offset
	policy   Policy
	pins     map[int]record.Offset
	pinID    int
	view     *View
	views    []*View
	epoch    record.Epoch
	handle   *Handle
	scanFail error
	afterHot func(Hot)     // called behind each sample; nil: nothing
	release  chan struct{} // closed: Extra may go on; nil: it does not wait
}

func forever() Policy {
	return Policy{SegmentBytes: 1 << 30, SegmentAge: time.Hour, RetentionAge: -1, RetentionBytes: -1, LocalRetentionAge: -1, LocalRetentionBytes: -1, TimestampAfterMax: -1}
}

func newPartition(t testing.TB) *fakePartition {
	return &fakePartition{t: t, policy: forever(), pins: map[int]record.Offset{}}
}

func (p *fakePartition) end() record.Offset {
	if len(p.all) == 0 {
		return 0
	}
	return p.all[len(p.all)-1].NextOffset()
}

// lead begins an epoch at the end of the log.
func (p *fakePartition) lead(e record.Epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = e
	p.chain = append(p.chain, record.EpochStart{Epoch: e, Start: p.end()})
}

// add appends one batch of records with these timestamps; it is committed at once.
func (p *fakePartition) add(codec record.Codec, value int, timestamps ...int64) {
	p.t.Helper()
	p.mu.Lock()
	b := record.Builder{Codec: codec, BaseOffset: p.end(), LeaderEpoch: p.epoch}
	rng := rand.New(rand.NewPCG(uint64(p.end()), 7))
	for _, ts := range timestamps {
		v := make([]byte, value)
		for i := range v {
			v[i] = byte(rng.UintN(256))
		}
		b.Add(ts, nil, v)
	}
	batch, err := b.Build()
	if err != nil {
		p.t.Fatal(err)
	}
	p.push(batch)
}

// push appends a built batch; the caller holds mu, which it gives up.
func (p *fakePartition) push(b record.Batch) {
	p.all = append(p.all, b)
	if p.lso == p.hw {
		p.lso = b.NextOffset()
	}
	p.hw = b.NextOffset()
	h := p.handle
	p.mu.Unlock()
	p.appended(h)
}

func (p *fakePartition) appended(h *Handle) {
	if h != nil {
		h.Appended(p.Hot(h.tieredEnd()).SealableBytes)
	}
}

func (p *fakePartition) setLSO(o record.Offset) {
	p.mu.Lock()
	p.lso = o
	h := p.handle
	p.mu.Unlock()
	p.appended(h)
}

func (p *fakePartition) bytesFrom(o, to record.Offset) int64 {
	n := int64(0)
	for _, b := range p.all {
		if b.LastOffset() >= max(o, p.local) && b.BaseOffset() < to {
			n += int64(len(b))
		}
	}
	return n
}

func (p *fakePartition) Policy() Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy
}

func (p *fakePartition) setPolicy(fn func(*Policy)) {
	p.mu.Lock()
	fn(&p.policy)
	h := p.handle
	p.mu.Unlock()
	if h != nil {
		h.Kick()
	}
}

func (p *fakePartition) Hot(tieredEnd record.Offset) Hot {
	hot := p.sample(tieredEnd)
	p.mu.Lock()
	after := p.afterHot
	p.mu.Unlock()
	if after != nil {
		after(hot)
	}
	return hot
}

func (p *fakePartition) sample(tieredEnd record.Offset) Hot {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := Hot{LocalStart: p.local, HW: p.hw, LSO: p.lso, LogEnd: p.end(), LocalBytes: p.bytesFrom(0, p.end()),
		UnsealedBytes: p.bytesFrom(tieredEnd, p.end()), SealableBytes: p.bytesFrom(tieredEnd, min(p.hw, p.lso))}
	if p.view != nil {
		h.LogStart = p.view.Head.LogStart
	}
	return h
}

type fakePin struct {
	p      *fakePartition
	id     int
	from   record.Offset
	limit  record.Offset
	closed bool
}

func (p *fakePartition) Epochs() []record.EpochStart { return nil }

func (p *fakePartition) Pin(base, limit record.Offset) (Pinned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if base < p.local || limit > p.hw {
		return nil, fmt.Errorf("pin [%d, %d) of [%d, %d)", base, limit, p.local, p.hw)
	}
	p.pinID++
	p.pins[p.pinID] = base
	return &fakePin{p: p, id: p.pinID, from: base, limit: limit}, nil
}

func (f *fakePin) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	f.p.mu.Lock()
	if f.closed || from < f.from || limit > f.limit {
		f.p.mu.Unlock()
		f.p.t.Errorf("scan [%d, %d) of a pin of [%d, %d), released: %v", from, limit, f.from, f.limit, f.closed)
		return errors.New("bad scan")
	}
	fail, batches, local := f.p.scanFail, f.p.all, f.p.local
	f.p.mu.Unlock()
	if fail != nil {
		return fail
	}
	for _, b := range batches {
		if b.LastOffset() >= max(from, local) && b.BaseOffset() < limit {
			if err := fn(b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fakePin) Extra(end record.Offset) (segment.Extra, error) {
	f.p.mu.Lock()
	release := f.p.release
	x := segment.Extra{FirstUnstable: record.NoOffset, Epochs: slices.Clone(f.p.chain), Producers: []segment.Producer{{ID: 1, State: []byte(fmt.Sprint("state at ", end))}}}
	for _, a := range f.p.aborted {
		if a.First < end && a.Marker >= f.from {
			x.Aborted = append(x.Aborted, a)
		}
	}
	f.p.mu.Unlock()
	if release != nil {
		<-release
	}
	return x, nil
}

func (f *fakePin) Release() {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.closed = true
	delete(f.p.pins, f.id)
}

func (p *fakePartition) Archived(v *View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view != nil && (v.Head.TieredEnd < p.view.Head.TieredEnd || v.Head.LogStart < p.view.Head.LogStart || v.Head.Rev < p.view.Head.Rev) {
		p.t.Errorf("head went back from %+v to %+v", p.view.Head, v.Head)
	}
	p.view = v
	p.views = append(p.views, v)
}

// Evict is what a partition has to do: no further than its own HW, what is in the bucket or dead, and pins.
func (p *fakePartition) Evict(to record.Offset) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	bound := min(p.hw, max(p.view.Head.TieredEnd, p.view.Head.LogStart))
	if to > bound {
		p.t.Errorf("evict below %d, bound %d", to, bound)
	}
	to = min(to, bound)
	for _, pin := range p.pins {
		to = min(to, pin)
	}
	p.local = max(p.local, to)
	return nil
}

func (p *fakePartition) localStart() record.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.local
}

// world is a metadata store, a bucket and one partition, which survive the nodes that lead it.
type world struct {
	t      testing.TB
	server *memory.Server
	inner  *mem.Store
	faulty *objstore.Faulty
	p      *fakePartition
	id     record.PartitionID
	cfg    Config
	// cluster is what the bucket says about whose it is.
	cluster string
}

func newWorld(t testing.TB) *world {
	inner := mem.NewStore()
	w := &world{t: t, server: memory.New(), inner: inner, faulty: objstore.Fault(inner, objstore.FaultOptions{Seed: 1}), p: newPartition(t)}
	w.cfg = Config{Workers: 2, GCGrace: time.Hour, UploadDeadline: time.Minute, Logger: quiet()}
	t.Cleanup(func() { _ = w.faulty.Close() })
	return w
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// node is one process that leads the world's partition.
type node struct {
	w      *world
	meta   *metadata.Store
	sess   *metadata.Session
	client *memory.Client
	a      *Archiver
	h      *Handle
	cancel context.CancelFunc
	done   chan error
	boot   uint64
}

// start takes the partition over. wrap may put something between archiver and its seams.
func (w *world) start(ctx context.Context, wrap func(Metadata, objstore.Store) (Metadata, objstore.Store)) *node {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	n := &node{w: w, client: w.server.Client(), cancel: cancel, done: make(chan error, 1)}
	var err error
	if n.meta, err = metadata.Open(ctx, n.client, metadata.Options{NodeID: 1, Logger: quiet(), CompactEvery: -1, BucketClusterID: w.cluster}); err != nil {
		w.t.Fatal(err)
	}
	// The bucket names the cluster from its first object on.
	if err := n.meta.ConfirmBucket(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.cluster = n.meta.ClusterID()
	if n.sess, err = n.meta.Register(ctx, metadata.BrokerInfo{StoreID: metadata.UUID{1}, Boots: 1}); err != nil {
		w.t.Fatal(err)
	}
	if w.id == (record.PartitionID{}) {
		topic, err := n.meta.CreateTopic(ctx, metadata.TopicSpec{Name: "orders", Partitions: [][]record.NodeID{{1}}})
		if err != nil {
			w.t.Fatal(err)
		}
		w.id = record.PartitionID{Topic: topic.ID}
	}
	ls, err := n.meta.TakeOver(ctx, n.sess, []record.PartitionID{w.id})
	if err != nil || len(ls) != 1 {
		w.t.Fatalf("take over: %v %v", ls, err)
	}
	var meta Metadata = n.meta
	var store objstore.Store = w.faulty
	if wrap != nil {
		meta, store = wrap(meta, store)
	}
	w.p.lead(ls[0].Epoch)
	n.a = NewArchiver(w.cfg, store, meta)
	go func() { n.done <- n.a.Run(ctx) }()
	n.h = n.a.Lead(ctx, Term{Leadership: ls[0], ClusterID: n.meta.ClusterID(), Gen: n.meta.Gen(), TopicName: "orders"}, w.p)
	w.p.mu.Lock()
	w.p.handle = n.h
	w.p.mu.Unlock()
	return n
}

// stop ends the process; its registration goes.
func (n *node) stop() {
	n.w.t.Helper()
	n.w.p.mu.Lock()
	n.w.p.handle = nil
	n.w.p.mu.Unlock()
	n.cancel()
	n.h.Close()
	if err := <-n.done; err != nil {
		n.w.t.Fatalf("archiver: %v", err)
	}
	if err := n.sess.Close(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
}

// tick has everything that is due done.
func (n *node) tick() {
	n.w.t.Helper()
	if err := n.a.Jobs().Tick(context.Background(), "archive"); err != nil {
		n.w.t.Fatal(err)
	}
}

// check compares bucket and metadata with what the partition ever held: every referenced object is there and whole, the readable range is served
// byte for byte, and whatever else is in the bucket is accounted for.
func (w *world) check(meta *metadata.Store) *View {
	w.t.Helper()
	ctx := context.Background()
	v, err := LoadView(ctx, meta, w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	pages := storePages{w.inner}
	known := map[string]bool{}
	for _, p := range v.Manifest.Pages {
		known[p.Object] = true
	}
	err = v.Manifest.Walk(0, func(p manifest.Page) ([]manifest.Entry, error) { return pages.Page(ctx, p) }, func(e *manifest.Entry) bool {
		known[e.Object] = true
		b, err := w.inner.Get(ctx, e.Object, 0, e.Len, nil)
		if err != nil || crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) != e.CRC {
			w.t.Fatalf("S22: object of [%d, %d): %v", e.Base, e.End, err)
		}
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.checkOrphans(meta, known)
	w.checkReads(v)
	if !agree(&v.Head, v.Manifest) {
		w.t.Fatalf("head %+v does not summarise the manifest: %d entries, %d bytes", v.Head, len(v.Manifest.Entries), v.Manifest.DataBytes())
	}
	return v
}

func (w *world) checkOrphans(meta *metadata.Store, known map[string]bool) {
	w.t.Helper()
	ctx := context.Background()
	intents, err := meta.Intents(ctx, w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range intents {
		for _, k := range i.Keys {
			known[k] = true
		}
	}
	garbage, err := meta.GCRecords(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range garbage {
		for _, k := range g.Keys {
			known[k] = true
		}
	}
	if err := w.inner.List(ctx, "", "", func(i objstore.Info) error {
		if !known[i.Key] {
			w.t.Errorf("object %s is accounted for nowhere", i.Key)
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// checkReads reads the whole tiered range through a Reader and compares it with the batches; and nothing between hot and tier is missing.
func (w *world) checkReads(v *View) {
	w.t.Helper()
	r := NewReader(ReaderConfig{}, w.inner)
	defer func() { _ = r.Close() }()
	var want []byte
	for _, b := range w.p.all {
		if b.NextOffset() > v.Head.LogStart && b.BaseOffset() < v.Head.TieredEnd {
			want = append(want, b...)
		}
	}
	if got := readThrough(w.t, r, v, v.Head.LogStart, 100_000); !bytes.Equal(got, want) {
		w.t.Fatalf("S12: the tier gives %d bytes, the log had %d", len(got), len(want))
	}
	if w.p.local > max(v.Head.TieredEnd, v.Head.LogStart) {
		w.t.Fatalf("S21: local start %d, tiered end %d", w.p.local, v.Head.TieredEnd)
	}
}

// readThrough reads from o to the tiered end.
func readThrough(t testing.TB, r *Reader, v *View, o record.Offset, maxBytes int) []byte {
	t.Helper()
	var out []byte
	for o < v.Head.TieredEnd {
		res, err := r.Read(context.Background(), ReadRequest{View: v, Offset: o, Limit: v.Head.TieredEnd, MaxBytes: maxBytes, FirstWhole: true})
		if err != nil {
			t.Fatal(err)
		}
		if res.Next <= o {
			t.Fatalf("read at %d does not move on", o)
		}
		out, o = append(out, res.Data...), res.Next
	}
	return out
}
