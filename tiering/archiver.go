// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

// Config of an Archiver; zero values are the defaults of limits.go.
type Config struct {
	Workers         int           // partitions archived at the same time
	SegmentMaxBytes int64         // varve.segment.max.bytes
	SegmentMaxAge   time.Duration // varve.segment.max.ms
	HotBytes        int64         // varve.hot.bytes; 0: no budget
	NodeHotBytes    func() int64  // live bytes of the node's hot logs; nil: the sum over the led partitions
	ManifestEntries int           // varve.manifest.etcd.entries, for the whole cluster
	AppendedBytes   func() int64  // bytes appended to the node's hot logs so far, which uploads follow; nil: not known
	Partitions      func() int    // partitions of the cluster that share ManifestEntries; nil: those led here
	PageEntries     int           // entries per page
	MinFold         int           // entries kept unfolded at least
	GCGrace         time.Duration
	UploadDeadline  time.Duration // at least; scaled up by size
	Pages           PageSource    // where folded pages are read; nil: straight from the store
	Logger          *slog.Logger
	Registerer      prometheus.Registerer
}

func (c *Config) setDefaults() {
	c.Workers = orDefault(c.Workers, DefaultWorkers)
	c.PageEntries = orDefault(c.PageEntries, defaultPageEntries)
	c.MinFold = orDefault(c.MinFold, minFold)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Limits are the part of the configuration that may change while the archiver runs; zero values are the defaults.
type Limits struct {
	SegmentMaxBytes int64         // varve.segment.max.bytes
	SegmentMaxAge   time.Duration // varve.segment.max.ms
	HotBytes        int64         // varve.hot.bytes; 0: no budget
	ManifestEntries int           // varve.manifest.etcd.entries, for the whole cluster
	GCGrace         time.Duration
	UploadDeadline  time.Duration // at least; scaled up by size
}

// withDefaults fills in what is not set.
func (l Limits) withDefaults() *Limits {
	l.SegmentMaxBytes = orDefault(l.SegmentMaxBytes, DefaultSegmentMaxBytes)
	l.SegmentMaxAge = orDefault(l.SegmentMaxAge, DefaultSegmentMaxAge)
	l.ManifestEntries = orDefault(l.ManifestEntries, DefaultManifestEntries)
	l.GCGrace = orDefault(l.GCGrace, DefaultGCGrace)
	l.UploadDeadline = orDefault(l.UploadDeadline, DefaultUploadDeadline)
	return &l
}

func orDefault[T int | int64 | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Limits in force.
func (a *Archiver) Limits() Limits { return *a.limits.Load() }

// SetLimits changes the limits and has every partition looked at.
func (a *Archiver) SetLimits(l Limits) {
	a.limits.Store(l.withDefaults())
	for _, h := range a.all() {
		h.Kick()
	}
}

// PauseSealing stops or resumes sealing, for measurements and emergencies; retention, eviction and cold reads go on.
func (a *Archiver) PauseSealing(on bool) {
	a.paused.Store(on)
	if on {
		return
	}
	for _, h := range a.all() {
		h.Kick()
	}
}

// Archiver moves sealed ranges of all led partitions into the bucket, folds, retains and evicts: a fixed pool of workers takes one
// partition at a time from a queue and does for it whatever is due. A partition gets into the queue when its log grew past its mark, when a
// deadline of it passes, or when the hot budget asks; one that is idle costs nothing.
type Archiver struct {
	cfg     Config
	limits  atomic.Pointer[Limits]
	paused  atomic.Bool
	store   objstore.Store
	meta    Metadata
	pages   PageSource
	metrics *archiverMetrics
	jobs    *Jobs
	pace    *pace
	outage  outage

	mu struct {
		sync.Mutex
		handles map[*Handle]struct{}
		queue   []*Handle
		timers  deadlines
		closed  bool
		busy    int
	}
	wake  chan struct{} // a handle was queued; buffered, one token per worker at most
	rearm chan struct{} // the earliest deadline changed
	idle  *sync.Cond    // busy fell or the queue emptied
}

// NewArchiver makes an archiver; Run starts it.
func NewArchiver(cfg Config, store objstore.Store, meta Metadata) *Archiver {
	cfg.setDefaults()
	a := &Archiver{cfg: cfg, store: store, meta: meta, pages: cfg.Pages, metrics: newArchiverMetrics(cfg.Registerer),
		wake: make(chan struct{}, cfg.Workers), rearm: make(chan struct{}, 1), pace: newPace(cfg.AppendedBytes)}
	a.outage.log = cfg.Logger
	if a.pages == nil {
		a.pages = storePages{store}
	}
	a.limits.Store(Limits{SegmentMaxBytes: cfg.SegmentMaxBytes, SegmentMaxAge: cfg.SegmentMaxAge, HotBytes: cfg.HotBytes,
		ManifestEntries: cfg.ManifestEntries, GCGrace: cfg.GCGrace, UploadDeadline: cfg.UploadDeadline}.withDefaults())
	a.mu.handles = make(map[*Handle]struct{})
	registerLag(cfg.Registerer, a.lag)
	a.idle = sync.NewCond(&a.mu)
	a.jobs = NewJobs(cfg.Logger, cfg.Registerer)
	a.jobs.Add(Job{Name: "hot-budget", Interval: budgetInterval, Deadline: time.Minute, Run: a.budget})
	a.jobs.Add(Job{Name: "archive", Interval: sweepInterval, Deadline: 10 * time.Minute, Run: a.sweep})
	return a
}

// Jobs is the registry of the archiver's background jobs, for ticking and switching them off.
func (a *Archiver) Jobs() *Jobs { return a.jobs }

// Run works until ctx ends, and returns when every worker has.
func (a *Archiver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range a.cfg.Workers {
		g.Go(func() error { return a.work(ctx) })
	}
	g.Go(func() error { return a.clock(ctx) })
	g.Go(func() error { return a.jobs.Run(ctx) })
	err := g.Wait()
	a.mu.Lock()
	a.mu.closed = true
	a.idle.Broadcast()
	a.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Lead takes a partition in whose leadership has begun and passed its barrier. The term ends with ctx or Close; nothing done for it outlives
// it but objects, which their intents account for.
func (a *Archiver) Lead(ctx context.Context, t Term, p Partition) *Handle {
	ctx, cancel := context.WithCancel(ctx)
	h := &Handle{a: a, term: t, p: p, ctx: ctx, cancel: cancel, turn: make(chan struct{}, 1), at: -1}
	h.want.Store(1)
	a.mu.Lock()
	a.mu.handles[h] = struct{}{}
	a.metrics.led.Set(float64(len(a.mu.handles)))
	a.mu.Unlock()
	h.Kick()
	return h
}

// enqueue puts h into the queue unless it is there. After a failure it waits until its pause is over, whoever asks; insist does not.
func (a *Archiver) enqueue(h *Handle, insist bool) {
	a.mu.Lock()
	if _, ok := a.mu.handles[h]; !ok || h.queued || a.mu.closed || !insist && time.Now().Before(h.pause) {
		a.mu.Unlock()
		return
	}
	if h.running {
		h.again = true
		a.mu.Unlock()
		return
	}
	h.queued = true
	a.mu.queue = append(a.mu.queue, h)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Archiver) next() *Handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.queue) == 0 {
		return nil
	}
	h := a.mu.queue[0]
	a.mu.queue = slices.Delete(a.mu.queue, 0, 1)
	h.queued, h.running = false, true
	a.mu.busy++
	return h
}

func (a *Archiver) work(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h := a.next()
		if h == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-a.wake:
			}
			continue
		}
		a.step(ctx, h)
	}
}

// step does what is due for h and arms its next deadline.
func (a *Archiver) step(ctx context.Context, h *Handle) {
	sctx, cancel := context.WithCancel(objstore.OnFailedTry(h.ctx, h.tryFailed))
	stop := context.AfterFunc(ctx, cancel)
	next, err := a.guarded(sctx, h)
	stop()
	cancel()
	if h.ctx.Err() != nil || ctx.Err() != nil {
		err = nil // the term or the process ends
	}
	pause := time.Time{}
	if err != nil {
		h.failures++
		pause = time.Now().Add(backoff(h.failures))
		next = pause
		a.metrics.failures.Inc()
		level := slog.LevelWarn
		if h.trouble.Load() != nil {
			level = slog.LevelDebug // the outage is told once for all partitions
		}
		a.cfg.Logger.Log(ctx, level, "archive", "partition", h.term.ID.String(), "topic", h.term.TopicName, "failures", h.failures, "err", err)
	} else {
		h.failures = 0
		if h.trouble.Load() != nil {
			h.answered()
		}
		a.metrics.lastSuccess.SetToCurrentTime()
	}
	a.mu.Lock()
	h.running = false
	again := h.again && err == nil
	h.again, h.pause = false, pause
	a.arm(h, next)
	a.mu.busy--
	a.idle.Broadcast()
	a.mu.Unlock()
	if again {
		a.enqueue(h, false)
	}
}

// guarded keeps a bug in one partition's step from ending all archiving: it is that partition's failure, loud and counted.
func (a *Archiver) guarded(ctx context.Context, h *Handle) (next time.Time, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return h.step(ctx)
}

func backoff(failures int) time.Duration {
	return min(retryMax, retryMin<<min(failures-1, 20))
}

// arm sets when h is looked at next; zero: not by time. The caller holds mu.
func (a *Archiver) arm(h *Handle, at time.Time) {
	if _, ok := a.mu.handles[h]; !ok {
		return
	}
	if soon := time.Now().Add(minRearm); !at.IsZero() && at.Before(soon) {
		at = soon
	}
	switch {
	case at.IsZero() && h.at >= 0:
		heap.Remove(&a.mu.timers, h.at)
	case at.IsZero():
	case h.at >= 0:
		h.due = at
		heap.Fix(&a.mu.timers, h.at)
	default:
		h.due = at
		heap.Push(&a.mu.timers, h)
	}
	select {
	case a.rearm <- struct{}{}:
	default:
	}
}

// clock turns deadlines that have passed into queue entries: one timer for all partitions.
func (a *Archiver) clock(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a.mu.Lock()
		var due []*Handle
		now := time.Now()
		wait := time.Hour
		for len(a.mu.timers) > 0 {
			if d := a.mu.timers[0].due.Sub(now); d > 0 {
				wait = min(wait, d)
				break
			}
			due = append(due, heap.Pop(&a.mu.timers).(*Handle))
		}
		a.mu.Unlock()
		for _, h := range due {
			a.enqueue(h, true)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-a.rearm:
		}
	}
}

// sweep looks at every led partition once and waits until all were looked at. It is the net under everything that should have
// woken a partition (C2, C28), and what a test ticks.
func (a *Archiver) sweep(ctx context.Context) error {
	for _, h := range a.all() {
		a.enqueue(h, true)
	}
	stop := context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.idle.Broadcast()
	})
	defer stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for (len(a.mu.queue) > 0 || a.mu.busy > 0) && !a.mu.closed && ctx.Err() == nil {
		a.idle.Wait()
	}
	return ctx.Err()
}

func (a *Archiver) all() []*Handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	hs := make([]*Handle, 0, len(a.mu.handles))
	for h := range a.mu.handles {
		hs = append(hs, h)
	}
	return hs
}

// resting are the handles for which nothing is queued or running: what those will free is not known yet.
func (a *Archiver) resting() []*Handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	hs := make([]*Handle, 0, len(a.mu.handles))
	for h := range a.mu.handles {
		if !h.queued && !h.running {
			hs = append(hs, h)
		}
	}
	return hs
}

func (a *Archiver) remove(h *Handle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.handles, h)
	a.metrics.led.Set(float64(len(a.mu.handles)))
	if h.at >= 0 {
		heap.Remove(&a.mu.timers, h.at)
	}
	if i := slices.Index(a.mu.queue, h); i >= 0 {
		a.mu.queue = slices.Delete(a.mu.queue, i, i+1)
		h.queued = false
	}
	a.idle.Broadcast()
}

// deadlines is a heap of handles by due time.
type deadlines []*Handle

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}
func (d *deadlines) Push(x any) {
	h := x.(*Handle)
	h.at = len(*d)
	*d = append(*d, h)
}
func (d *deadlines) Pop() any {
	old := *d
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	h.at = -1
	return h
}

// lag is the age of the oldest data that waits to be sealed, in seconds.
func (a *Archiver) lag() float64 {
	oldest := int64(0)
	for _, h := range a.all() {
		if at := h.waiting.Load(); at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	if oldest == 0 {
		return 0
	}
	return time.Since(time.Unix(0, oldest)).Seconds()
}

// Views gives the view of every led partition, for tools and tests.
func (a *Archiver) Views() []*View {
	var vs []*View
	for _, h := range a.all() {
		if v := h.View(); v != nil {
			vs = append(vs, v)
		}
	}
	return vs
}

// head of a partition without a view yet.
func (h *Handle) tieredEnd() record.Offset {
	if v := h.View(); v != nil {
		return v.Head.TieredEnd
	}
	return h.term.Head.TieredEnd
}
