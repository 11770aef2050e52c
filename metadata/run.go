// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/record"
)

// Run loads the image and follows the store until ctx ends (then it returns nil) or the Store stops serving for good (then it
// returns why). Whatever is only temporary is tried again.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.follow(ctx) })
	g.Go(func() error { return s.keepChecking(ctx) })
	g.Go(func() error { return s.keepWitness(ctx) })
	if s.opts.CompactEvery > 0 {
		g.Go(func() error { return s.keepCompacting(ctx) })
	}
	g.Go(func() error {
		select {
		case <-s.failure:
			return s.Err()
		case <-ctx.Done():
			return nil
		}
	})
	err := g.Wait()
	if s.Err() != nil {
		return s.Err()
	}
	return err
}

// follow keeps the image current: load, watch, and again when the watch's history is gone.
func (s *Store) follow(ctx context.Context) error {
	reason := "start"
	for pause := retryMin; ctx.Err() == nil; {
		if reason != "" {
			if err := s.load(ctx); err != nil {
				if s.hopeless(err) {
					return err
				}
				s.log.Warn("metadata: load failed, trying again", "error", err)
				_ = sleep(ctx, jitter(pause)) // the loop looks at ctx
				pause = min(2*pause, retryMax)
				continue
			}
			s.metrics.reloads.WithLabelValues(reason).Inc()
			reason, pause = "", retryMin
		}
		moved, err := s.watch(ctx)
		if moved {
			pause = retryMin
		}
		switch {
		case ctx.Err() != nil:
		case s.hopeless(err):
			return err
		case errors.Is(err, ErrCompacted):
			reason = "compacted"
		case errors.Is(err, errDifference):
			reason = "difference"
		default:
			s.log.Warn("metadata: watch ended, starting it again", "error", err, "revision", s.Image().Revision)
			_ = sleep(ctx, jitter(pause))
			pause = min(2*pause, retryMax)
		}
	}
	return nil
}

var errDifference = errors.New("the image lacks a change that the store has")

// hopeless errors end the Store: it would serve what it cannot read, or what no longer happened.
func (s *Store) hopeless(err error) bool {
	var newer *ErrNewerVersion
	if errors.As(err, &newer) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrGeneration) || errors.Is(err, ErrWentBack) ||
		errors.Is(err, ErrVersionRange) {
		s.fail(err)
		return true
	}
	return false
}

// load reads everything at one revision. Parts that are as before stay the same objects, so that Diff finds only news.
func (s *Store) load(ctx context.Context) error {
	old := s.Image()
	e := s.newEdit(&Image{})
	rev, err := s.readAll(ctx, s.keys.state(), 0, func(kv *KeyValue) error {
		ev := Event{KeyValue: *kv}
		ev.Version = 1 // counts as one key
		return e.apply(&ev)
	})
	if err != nil {
		return err
	}
	if rev < old.Revision {
		// A member that lags, or a store that went back: observe decides which. This answer is no newer image either way (P5).
		return fmt.Errorf("%w: load answered with revision %d, the image has %d", ErrUnavailable, rev, old.Revision)
	}
	if sameBrokerConfigs(e.img, old) {
		e.img.NodeConfig, e.img.topicDefaults, e.brokerConfig = old.NodeConfig, old.topicDefaults, false
	}
	img := e.done(rev)
	adopt(img, old)
	s.publish(img, false)
	return nil
}

// sameBrokerConfigs tells whether what topics inherit from this node is the same in both.
func sameBrokerConfigs(a, b *Image) bool {
	if b.NodeConfig == nil || len(a.configs) != len(b.configs) {
		return false
	}
	for name, entry := range a.configs {
		if b.configs[name].rev != entry.rev {
			return false
		}
	}
	return true
}

// adopt replaces what is the same in both images by the older objects.
func adopt(img, old *Image) {
	if !old.Loaded() {
		return
	}
	mark := new(editMark)
	var same []record.TopicID
	img.topics.each(func(id record.TopicID, b *topicEntry) bool {
		a, ok := old.topics.get(id)
		if !ok {
			return true
		}
		if sameTopic(a.topic, b.topic) && (b.topic == nil || img.NodeConfig == old.NodeConfig) {
			b.topic = a.topic
		}
		equal := a.topic == b.topic && len(a.chunks) == len(b.chunks)
		for c := range b.chunks {
			if c < len(a.chunks) && adoptChunk(b.chunks[c], a.chunks[c]) {
				b.chunks[c] = a.chunks[c]
			} else {
				equal = false
			}
		}
		if equal {
			same = append(same, id)
		}
		return true
	})
	for _, id := range same {
		a, _ := old.topics.get(id)
		img.topics.put(id, a, mark)
	}
}

func sameTopic(a, b *Topic) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Rev == b.Rev
}

// adoptChunk takes over the states that are the same, and tells whether all are.
func adoptChunk(b, a *chunk) bool {
	if a == nil || b == nil {
		return a == b
	}
	all := true
	for i := range b.states {
		x, y := a.states[i], b.states[i]
		if x == nil && y == nil {
			continue
		}
		if x != nil && y != nil && x.Leader.Rev == y.Leader.Rev && x.ISR.Rev == y.ISR.Rev && x.Head.Rev == y.Head.Rev {
			b.states[i] = x
			continue
		}
		all = false
	}
	return all
}

// watch follows the store from the image on until the watch ends. moved tells whether it gave anything.
func (s *Store) watch(ctx context.Context) (moved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := s.kv.Watch(ctx, s.keys.state(), s.Image().Revision+1)
	defer w.Close()
	s.mu.Lock()
	s.mu.watcher = w
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.mu.watcher = nil
		s.mu.Unlock()
	}()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			select {
			case <-s.reload:
				return moved, errDifference
			default:
			}
			return moved, err
		}
		if err := s.take(&b); err != nil {
			return moved, err
		}
		moved = true
	}
}

// take makes a batch of the watch the next image.
func (s *Store) take(b *WatchBatch) error {
	img := s.Image()
	fresh := slices.IndexFunc(b.Events, func(e Event) bool { return e.ModRevision > img.Revision })
	if fresh < 0 {
		if b.Revision > img.Revision {
			next := *img
			next.Revision = b.Revision
			s.publish(&next, true)
		}
		return nil
	}
	e := s.newEdit(img)
	for i := fresh; i < len(b.Events); i++ {
		if err := e.apply(&b.Events[i]); err != nil {
			return err
		}
	}
	s.publish(e.done(max(b.Revision, b.Events[len(b.Events)-1].ModRevision)), false)
	return nil
}

// keepChecking asks every so often whether the store still is the one it was and whether the image is what the store holds: a
// watch is a hint, it may hang or skip (faults K4, K5).
func (s *Store) keepChecking(ctx context.Context) error {
	c := checker{s: s}
	for sleep(ctx, s.opts.Silence) == nil {
		if err := c.check(ctx); err != nil && ctx.Err() == nil {
			if s.hopeless(err) {
				return err
			}
			s.log.Warn("metadata: check failed, trying again", "error", err)
		}
	}
	return nil
}

type checker struct {
	s        *Store
	verified Revision // the image was right at this revision
}

func (c *checker) check(ctx context.Context) error {
	s := c.s
	if !s.Image().Loaded() {
		return nil
	}
	res, err := s.read(ctx, RangeRequest{Key: s.keys.key(keyGen)})
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, max(s.opts.Silence/3, retryMax))
	err = s.WaitFor(wait, res.Revision)
	cancel()
	if err != nil {
		if ctx.Err() == nil && s.Err() == nil {
			s.log.Warn("metadata: the watch is silent, starting it again", "image", s.Image().Revision, "store", res.Revision)
			s.endWatch()
		}
		return nil
	}
	img := s.Image()
	if img.Revision == c.verified {
		return nil
	}
	same, err := c.compare(ctx, img)
	if errors.Is(err, ErrCompacted) {
		return nil // the image is older than the history; the next check has a newer one
	}
	if err != nil {
		return err
	}
	if !same {
		s.log.Error("metadata: the watch lost a change, loading everything again", "revision", img.Revision)
		select {
		case s.reload <- struct{}{}:
		default:
		}
		s.endWatch()
		return nil
	}
	c.verified = img.Revision
	return nil
}

// compare reads what changed since the last check, as of the image's revision, and counts the keys: a lost put shows in the first, a
// lost deletion in the second.
func (c *checker) compare(ctx context.Context, img *Image) (same bool, err error) {
	prefix := c.s.keys.state()
	res, err := c.s.read(ctx, RangeRequest{
		Key: prefix, End: prefixEnd(prefix), At: img.Revision, MinModRevision: c.verified + 1, KeysOnly: true,
	})
	if err != nil {
		return false, err
	}
	if res.Count != img.keys {
		return false, nil
	}
	for i := range res.KVs {
		kv := &res.KVs[i]
		if img.revisionOf(kv.Key[len(c.s.keys.prefix):]) != kv.ModRevision {
			return false, nil
		}
	}
	return true, nil
}

func (s *Store) endWatch() {
	s.mu.Lock()
	w := s.mu.watcher
	s.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

// keepWitness records the highest revision beside the data, at most every witnessEvery and only when it moved.
func (s *Store) keepWitness(ctx context.Context) error {
	for sleep(ctx, witnessEvery) == nil {
		if err := s.saveWitness(); err != nil {
			return fmt.Errorf("recording the metadata revision beside the data: %w", err)
		}
	}
	return s.saveWitness()
}

// keepCompacting forgets the store's history of more than compactAge ago. One node does it: the one that holds the role.
func (s *Store) keepCompacting(ctx context.Context) error {
	type sample struct {
		at  time.Time
		rev Revision
	}
	var samples []sample
	var done Revision
	for sleep(ctx, s.opts.CompactEvery) == nil {
		s.mu.Lock()
		session := s.mu.session
		s.mu.Unlock()
		if session == nil || !session.Alive() {
			continue
		}
		samples = append(samples, sample{time.Now(), s.Image().Revision})
		if n := len(samples); n > maxSamples {
			samples = samples[n-maxSamples:]
		}
		var to Revision
		for _, x := range samples {
			if time.Since(x.at) >= compactAge {
				to = x.rev
			}
		}
		if to <= done {
			continue
		}
		mine, err := s.Elect(ctx, session, "etcd-compactor")
		if err == nil && mine {
			actx, cancel := context.WithTimeout(ctx, attemptTimeout)
			if err = s.kv.Compact(actx, to); err == nil {
				done = to
			}
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("metadata: compacting the store's history failed, trying again", "error", err)
		}
	}
	return nil
}
