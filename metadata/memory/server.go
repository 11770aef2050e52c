// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
)

// maxTxnOps and maxTxnBytes are etcd's own defaults: a transaction that etcd would refuse is refused here.
const (
	maxTxnOps   = 128
	maxTxnBytes = 1536 << 10
)

// Server is one store.
type Server struct {
	mu struct {
		sync.Mutex
		clusterID uint64
		rev       metadata.Revision
		compacted metadata.Revision
		keys      []string // sorted
		items     map[string][]metadata.Event
		log       []metadata.Event // since compacted, ascending
		leases    map[metadata.LeaseID]*lease
		nextLease metadata.LeaseID
		changed   chan struct{}
		outage    bool
		txns      int64
	}
}

type lease struct {
	id    metadata.LeaseID
	ttl   time.Duration
	keys  map[string]struct{}
	timer *time.Timer
	until time.Time
}

// New makes an empty store.
func New() *Server {
	s := &Server{}
	s.mu.clusterID = 0xc1
	s.mu.rev = 1
	s.mu.items = map[string][]metadata.Event{}
	s.mu.leases = map[metadata.LeaseID]*lease{}
	s.mu.changed = make(chan struct{})
	return s
}

// Client is a new client of the store.
func (s *Server) Client() *Client { return &Client{server: s, done: make(chan struct{})} }

// SetOutage takes the whole store away (nothing is applied, leases stand still) and brings it back (leases begin anew, as
// after etcd has elected a leader).
func (s *Server) SetOutage(out bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.outage == out {
		return
	}
	s.mu.outage = out
	for _, l := range s.mu.leases {
		if out {
			l.timer.Stop()
		} else {
			l.until = time.Now().Add(l.ttl)
			l.timer.Reset(l.ttl)
		}
	}
	s.wakeLocked()
}

// Txns is how many transactions were executed, for tests that count.
func (s *Server) Txns() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.txns
}

// Snapshot is a backup of a store.
type Snapshot struct {
	rev, compacted metadata.Revision
	items          map[string][]metadata.Event
	log            []metadata.Event
}

// Snapshot takes a backup; leases are not in it.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{rev: s.mu.rev, compacted: s.mu.compacted, items: cloneItems(s.mu.items), log: slices.Clone(s.mu.log)}
}

// Restore makes the store what it was at the backup, as an operator would behind everybody's back.
func (s *Server) Restore(b *Snapshot, clusterID uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rev, s.mu.compacted, s.mu.clusterID = b.rev, b.compacted, clusterID
	s.mu.items, s.mu.log = cloneItems(b.items), slices.Clone(b.log)
	s.mu.keys = s.mu.keys[:0]
	for k := range s.mu.items {
		s.mu.keys = append(s.mu.keys, k)
	}
	slices.Sort(s.mu.keys)
	s.wakeLocked()
}

// ClusterID names the store's history.
func (s *Server) ClusterID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.clusterID
}

func cloneItems(in map[string][]metadata.Event) map[string][]metadata.Event {
	out := make(map[string][]metadata.Event, len(in))
	for k, v := range in {
		out[k] = slices.Clone(v)
	}
	return out
}

func (s *Server) wakeLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

func (s *Server) headerLocked() metadata.Header {
	return metadata.Header{ClusterID: s.mu.clusterID, Revision: s.mu.rev}
}

// atLocked is the key as of a revision.
func (s *Server) atLocked(key string, at metadata.Revision) (metadata.KeyValue, bool) {
	versions := s.mu.items[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if v := &versions[i]; v.ModRevision <= at {
			return v.KeyValue, !v.Deleted
		}
	}
	return metadata.KeyValue{}, false
}

// spanLocked gives the index range of the keys in [key, end), or of key alone.
func (s *Server) spanLocked(key, end string) []string {
	from, ok := slices.BinarySearch(s.mu.keys, key)
	if end == "" {
		if !ok {
			return nil
		}
		return s.mu.keys[from : from+1]
	}
	to, _ := slices.BinarySearch(s.mu.keys, end)
	if to < from {
		return nil
	}
	return s.mu.keys[from:to]
}

func (s *Server) rangeLocked(req metadata.RangeRequest) (metadata.RangeResult, error) {
	res := metadata.RangeResult{Header: s.headerLocked()}
	at := req.At
	switch {
	case at == 0:
		at = s.mu.rev
	case at < s.mu.compacted:
		return res, fmt.Errorf("reading at revision %d, compacted at %d: %w", at, s.mu.compacted, metadata.ErrCompacted)
	case at > s.mu.rev:
		return res, fmt.Errorf("reading at revision %d, newest is %d: %w", at, s.mu.rev, metadata.ErrRefused)
	}
	for _, k := range s.spanLocked(req.Key, req.End) {
		kv, ok := s.atLocked(k, at)
		if !ok {
			continue
		}
		res.Count++
		if req.CountOnly || kv.ModRevision < req.MinModRevision {
			continue
		}
		if req.Limit > 0 && len(res.KVs) == req.Limit {
			res.More = true
			continue
		}
		if req.KeysOnly {
			kv.Value = nil
		}
		res.KVs = append(res.KVs, kv)
	}
	return res, nil
}

func (s *Server) txnLocked(t metadata.Txn) (metadata.TxnResult, error) {
	if err := check(t); err != nil {
		return metadata.TxnResult{}, err
	}
	s.mu.txns++
	res := metadata.TxnResult{Succeeded: true}
	for i := range t.If {
		res.Succeeded = res.Succeeded && s.holdsLocked(&t.If[i])
	}
	ops := t.Else
	if res.Succeeded {
		ops = t.Then
	}
	for i := range ops {
		if op := &ops[i]; op.Kind == metadata.OpPut && op.Lease != 0 && s.mu.leases[op.Lease] == nil {
			return res, metadata.ErrLeaseNotFound
		}
	}
	next := s.mu.rev + 1
	changed := false
	res.Reads = make([][]metadata.KeyValue, len(ops))
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case metadata.OpPut:
			s.putLocked(op.Key, op.Value, op.Lease, next)
			changed = true
		case metadata.OpDelete:
			for _, k := range slices.Clone(s.spanLocked(op.Key, op.End)) {
				changed = s.deleteLocked(k, next) || changed
			}
		case metadata.OpGet:
			// Reads see what the steps before them did, as in etcd.
			at := s.mu.rev
			if changed {
				at = next
			}
			for _, k := range s.spanLocked(op.Key, op.End) {
				if kv, ok := s.atLocked(k, at); ok && (op.Limit == 0 || len(res.Reads[i]) < op.Limit) {
					res.Reads[i] = append(res.Reads[i], kv)
				}
			}
		}
	}
	if changed {
		s.mu.rev = next
		s.wakeLocked()
	}
	res.Header = s.headerLocked()
	return res, nil
}

// check refuses what etcd refuses.
func check(t metadata.Txn) error {
	if len(t.If) > maxTxnOps || len(t.Then) > maxTxnOps || len(t.Else) > maxTxnOps {
		return fmt.Errorf("%d compares, %d and %d operations: %w", len(t.If), len(t.Then), len(t.Else), metadata.ErrTooLarge)
	}
	size := 0
	for _, ops := range [][]metadata.Op{t.Then, t.Else} {
		seen := map[string]bool{}
		for i := range ops {
			size += len(ops[i].Key) + len(ops[i].Value)
			if ops[i].Kind == metadata.OpGet {
				continue
			}
			if seen[ops[i].Key] {
				return fmt.Errorf("key %q twice in one transaction: %w", ops[i].Key, metadata.ErrRefused)
			}
			seen[ops[i].Key] = true
		}
	}
	if size > maxTxnBytes {
		return fmt.Errorf("transaction of %d bytes: %w", size, metadata.ErrTooLarge)
	}
	return nil
}

func (s *Server) holdsLocked(c *metadata.Compare) bool {
	if c.End == "" {
		kv, ok := s.atLocked(c.Key, s.mu.rev)
		if !ok {
			kv = metadata.KeyValue{}
		}
		return holds(c, &kv, ok)
	}
	for _, k := range s.spanLocked(c.Key, c.End) {
		if kv, ok := s.atLocked(k, s.mu.rev); ok && !holds(c, &kv, true) {
			return false
		}
	}
	return true
}

func holds(c *metadata.Compare, kv *metadata.KeyValue, there bool) bool {
	order := 0
	switch c.Target {
	case metadata.TargetValue:
		if !there {
			return false
		}
		order = bytes.Compare(kv.Value, c.Value)
	case metadata.TargetCreateRevision:
		order = compareInt(int64(kv.CreateRevision), c.Number)
	case metadata.TargetVersion:
		order = compareInt(kv.Version, c.Number)
	case metadata.TargetModRevision:
		order = compareInt(int64(kv.ModRevision), c.Number)
	}
	switch c.Relation {
	case metadata.Equal:
		return order == 0
	case metadata.NotEqual:
		return order != 0
	case metadata.Less:
		return order < 0
	default:
		return order > 0
	}
}

func compareInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (s *Server) putLocked(key string, value []byte, id metadata.LeaseID, rev metadata.Revision) {
	old, there := s.atLocked(key, rev)
	kv := metadata.KeyValue{Key: key, Value: bytes.Clone(value), CreateRevision: rev, ModRevision: rev, Version: 1, Lease: id}
	if kv.Value == nil {
		kv.Value = []byte{}
	}
	if there {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		s.detachLocked(key, old.Lease)
	}
	if l := s.mu.leases[id]; l != nil {
		l.keys[key] = struct{}{}
	}
	s.recordLocked(metadata.Event{KeyValue: kv})
}

func (s *Server) deleteLocked(key string, rev metadata.Revision) bool {
	old, there := s.atLocked(key, rev)
	if !there {
		return false
	}
	s.detachLocked(key, old.Lease)
	s.recordLocked(metadata.Event{KeyValue: metadata.KeyValue{Key: key, ModRevision: rev}, Deleted: true})
	return true
}

func (s *Server) detachLocked(key string, id metadata.LeaseID) {
	if l := s.mu.leases[id]; l != nil {
		delete(l.keys, key)
	}
}

func (s *Server) recordLocked(e metadata.Event) {
	if _, ok := s.mu.items[e.Key]; !ok {
		at, _ := slices.BinarySearch(s.mu.keys, e.Key)
		s.mu.keys = slices.Insert(s.mu.keys, at, e.Key)
	}
	s.mu.items[e.Key] = append(s.mu.items[e.Key], e)
	s.mu.log = append(s.mu.log, e)
}

// Compact forgets history below rev.
func (s *Server) Compact(rev metadata.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev = min(rev, s.mu.rev)
	if rev <= s.mu.compacted {
		return
	}
	s.mu.compacted = rev
	cut, _ := slices.BinarySearchFunc(s.mu.log, rev, func(e metadata.Event, r metadata.Revision) int {
		return compareInt(int64(e.ModRevision), int64(r))
	})
	s.mu.log = slices.Clone(s.mu.log[cut:])
	keys := make([]string, 0, len(s.mu.keys))
	for _, k := range s.mu.keys {
		v := s.mu.items[k]
		last := 0 // the newest version at or below rev is still readable at rev
		for i := range v {
			if v[i].ModRevision <= rev {
				last = i
			}
		}
		v = v[last:]
		if len(v) == 1 && v[0].Deleted && v[0].ModRevision <= rev {
			delete(s.mu.items, k)
			continue
		}
		s.mu.items[k] = slices.Clone(v)
		keys = append(keys, k)
	}
	s.mu.keys = keys
	s.wakeLocked()
}

// eventsLocked are the changes of keys with the prefix from revision `from` on, up to limit events but whole revisions.
func (s *Server) eventsLocked(prefix string, from metadata.Revision, limit int) []metadata.Event {
	at, _ := slices.BinarySearchFunc(s.mu.log, from, func(e metadata.Event, r metadata.Revision) int {
		return compareInt(int64(e.ModRevision), int64(r))
	})
	var out []metadata.Event
	for _, e := range s.mu.log[at:] {
		if len(out) >= limit && out[len(out)-1].ModRevision != e.ModRevision {
			break
		}
		if strings.HasPrefix(e.Key, prefix) {
			out = append(out, e)
		}
	}
	return out
}

func (s *Server) grantLocked(ttl time.Duration) (metadata.LeaseID, time.Duration) {
	ttl = max(time.Second, (ttl + time.Second - 1).Truncate(time.Second)) // whole seconds, as etcd's
	s.mu.nextLease++
	l := &lease{id: s.mu.nextLease, ttl: ttl, keys: map[string]struct{}{}, until: time.Now().Add(ttl)}
	l.timer = time.AfterFunc(ttl, func() { s.expire(l) })
	s.mu.leases[l.id] = l
	return l.id, ttl
}

func (s *Server) expire(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A keepalive that came while the timer was firing has moved the end.
	if s.mu.outage || s.mu.leases[l.id] != l || time.Now().Before(l.until) {
		return
	}
	s.endLeaseLocked(l)
}

func (s *Server) endLeaseLocked(l *lease) {
	l.timer.Stop()
	delete(s.mu.leases, l.id)
	if len(l.keys) == 0 {
		return
	}
	rev := s.mu.rev + 1
	for _, k := range sortedKeys(l.keys) {
		s.deleteLocked(k, rev)
	}
	s.mu.rev = rev
	s.wakeLocked()
}

func sortedKeys(m map[string]struct{}) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
