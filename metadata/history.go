// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// history is the newest revision ever seen, and of which store. A store whose linearizable answers lie below it was put back
// to an older state: what this node has told others no longer happened.
type history struct {
	mu struct {
		sync.Mutex
		cluster  uint64
		revision Revision
		written  Revision // what the witness has
	}
	// verifying serialises the asking again; only linearizable requests are made under it.
	verifying chan struct{}
}

func newHistory(w Witness) *history {
	h := &history{verifying: make(chan struct{}, 1)}
	if w != nil {
		id, rev := w.Witness()
		h.mu.cluster, h.mu.revision, h.mu.written = id, Revision(rev), Revision(rev)
	}
	return h
}

// floor is the lowest revision that an answer to a request sent from now on may have.
func (h *history) floor() Revision {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.revision
}

// fits tells whether an answer agrees with the history, and remembers it if so.
func (h *history) fits(a Header, floor Revision) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.cluster != 0 && a.ClusterID != h.mu.cluster || a.Revision < floor {
		return false
	}
	h.mu.cluster = a.ClusterID
	h.mu.revision = max(h.mu.revision, a.Revision)
	return true
}

func (h *history) problem(a Header, floor Revision) *WentBackError {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &WentBackError{From: floor, To: a.Revision, FromEtcd: h.mu.cluster, ToEtcd: a.ClusterID}
}

// observe checks a linearizable answer against the history. One that does not fit is asked again until the grace is over: a
// member of etcd that was paused may answer from the past for a while (faults K9). An error ends the Store.
func (s *Store) observe(ctx context.Context, a Header, floor Revision) error {
	if s.history.fits(a, floor) {
		return nil
	}
	select {
	case s.history.verifying <- struct{}{}:
		defer func() { <-s.history.verifying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.Err(); err != nil {
		return err
	}
	if p := s.history.problem(a, floor); p.FromEtcd != p.ToEtcd {
		s.log.Warn("metadata: another etcd cluster answered than before, asking again",
			"etcd", fmt.Sprintf("%x", p.ToEtcd), "was", fmt.Sprintf("%x", p.FromEtcd), "revision", a.Revision, "seen", floor, "grace", s.opts.WentBackGrace)
	} else {
		s.log.Warn("metadata: etcd answered with an older revision than it had, asking again",
			"revision", a.Revision, "seen", floor, "grace", s.opts.WentBackGrace)
	}
	until := time.Now().Add(s.opts.WentBackGrace)
	last := a
	for {
		at := s.history.floor()
		// Without an answer nothing is known: the grace counts answers, not silence.
		if res, err := s.rangeOnce(ctx, RangeRequest{Key: s.keys.key(keyGen)}); err == nil {
			if s.history.fits(res.Header, max(at, floor)) {
				return nil
			}
			last = res.Header
			if time.Now().After(until) {
				gone := s.history.problem(last, max(at, floor))
				s.fail(gone)
				return gone
			}
		}
		if err := sleep(ctx, min(retryMax, s.opts.WentBackGrace/8+time.Millisecond)); err != nil {
			return err
		}
	}
}

// rangeOnce is one bounded read without a look at the history.
func (s *Store) rangeOnce(ctx context.Context, req RangeRequest) (RangeResult, error) {
	actx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return s.kv.Range(actx, req)
}

// saveWitness writes the newest revision beside the node's data, when it moved.
func (s *Store) saveWitness() error {
	if s.opts.Witness == nil {
		return nil
	}
	h := s.history
	h.mu.Lock()
	cluster, rev, moved := h.mu.cluster, h.mu.revision, h.mu.revision > h.mu.written
	h.mu.Unlock()
	if !moved {
		return nil
	}
	if err := s.opts.Witness.SetWitness(cluster, int64(rev)); err != nil {
		return err
	}
	h.mu.Lock()
	h.mu.written = max(h.mu.written, rev)
	h.mu.Unlock()
	return nil
}

// restart begins the history anew: a reconcile has accepted that the store went back.
func (h *history) restart(a Header) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.cluster, h.mu.revision, h.mu.written = a.ClusterID, a.Revision, 0
}

// meetGeneration compares the cluster's generation with the one that the data directory has met. A higher one means that the cluster
// was reconciled after its store went back: what the directory has seen of the store before counts no more. It must have been looked
// at then, or it may hold what the cluster does not know of.
func (s *Store) meetGeneration(ctx context.Context) error {
	if s.opts.Witness == nil {
		return nil
	}
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		res, err := s.rangeOnce(ctx, RangeRequest{Key: s.keys.key(keyGen)})
		switch {
		case err == nil && len(res.KVs) == 0:
			return nil
		case err == nil:
			var g genJSON
			if err := decodeJSON("cluster generation", res.KVs[0].Value, &g); err != nil {
				return err
			}
			return s.judgeGeneration(&g, res.Header)
		case !isRetriable(err):
			return nil // the reading that follows says what is wrong
		}
		if sleep(ctx, jitter(pause)) != nil {
			return nil // as above
		}
	}
}

func (s *Store) judgeGeneration(g *genJSON, at Header) error {
	id, rev := s.opts.Witness.Witness()
	met := max(1, s.opts.Witness.Generation())
	switch {
	case rev == 0 || g.Gen == met:
		return nil
	case g.Gen < met:
		return fmt.Errorf("generation %d of the cluster, %d before: %w", g.Gen, met, &WentBackError{From: Revision(rev), To: at.Revision, FromEtcd: id, ToEtcd: at.ClusterID})
	case !s.opts.StoreID.IsZero() && !slices.Contains(g.Stores, s.opts.StoreID.String()):
		return fmt.Errorf("%w: the cluster was reconciled (generation %d) without this data directory: run \"varve restore --reconcile\" again with it, or move it aside and start with an empty one",
			ErrDataOfOther, g.Gen)
	}
	s.log.Warn("metadata: the cluster was reconciled, its history begins anew", "generation", g.Gen, "was", met, "revision", at.Revision, "seen", rev)
	s.history.restart(at)
	return nil
}

func (s *Store) saveGeneration() error {
	if s.opts.Witness == nil || s.opts.Witness.Generation() == s.gen {
		return nil
	}
	return s.opts.Witness.SetGeneration(s.gen)
}
