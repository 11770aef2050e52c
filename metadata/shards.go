// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"hash/maphash"
)

// shardCount is how many parts a persistent map has: a change copies one of them and the list.
const shardCount = 512

// shards is a persistent map: a value that shares what it has in common with the one it was edited from. A shard that nobody
// else can see yet (it carries the editor's mark) is changed in place, so a batch of events copies each shard once.
type shards[K comparable, V any] struct {
	list *[shardCount]*shard[K, V]
	mark *editMark
	n    int
}

type shard[K comparable, V any] struct {
	mark *editMark
	m    map[K]V
}

// editMark identifies one edit. It is not empty: pointers to zero-size values may be equal.
type editMark struct{ _ byte }

var shardSeed = maphash.MakeSeed()

func shardOf[K comparable](k K) int { return int(maphash.Comparable(shardSeed, k) % shardCount) }

func (s *shards[K, V]) len() int { return s.n }

func (s *shards[K, V]) get(k K) (v V, ok bool) {
	if s.list == nil {
		return v, false
	}
	if sh := s.list[shardOf(k)]; sh != nil {
		v, ok = sh.m[k]
	}
	return v, ok
}

func (s *shards[K, V]) each(fn func(K, V) bool) {
	if s.list == nil {
		return
	}
	for _, sh := range s.list {
		if sh == nil {
			continue
		}
		for k, v := range sh.m {
			if !fn(k, v) {
				return
			}
		}
	}
}

// own makes the shard of k this edit's own.
func (s *shards[K, V]) own(k K, mark *editMark) *shard[K, V] {
	if s.mark != mark {
		list := new([shardCount]*shard[K, V])
		if s.list != nil {
			*list = *s.list
		}
		s.list, s.mark = list, mark
	}
	at := shardOf(k)
	sh := s.list[at]
	if sh == nil || sh.mark != mark {
		own := &shard[K, V]{mark: mark, m: make(map[K]V)}
		if sh != nil {
			for k, v := range sh.m {
				own.m[k] = v
			}
		}
		s.list[at] = own
		sh = own
	}
	return sh
}

func (s *shards[K, V]) put(k K, v V, mark *editMark) {
	sh := s.own(k, mark)
	before := len(sh.m)
	sh.m[k] = v
	s.n += len(sh.m) - before
}

func (s *shards[K, V]) remove(k K, mark *editMark) {
	if _, ok := s.get(k); !ok {
		return
	}
	delete(s.own(k, mark).m, k)
	s.n--
}

// diffShards gives every key whose value differs; a side that lacks it gives the zero value.
func diffShards[K, V comparable](a, b *shards[K, V], fn func(k K, old, new V)) {
	if a.list == b.list {
		return
	}
	for i := range shardCount {
		var sa, sb *shard[K, V]
		if a.list != nil {
			sa = a.list[i]
		}
		if b.list != nil {
			sb = b.list[i]
		}
		if sa == sb {
			continue
		}
		var ma, mb map[K]V
		if sa != nil {
			ma = sa.m
		}
		if sb != nil {
			mb = sb.m
		}
		for k, va := range ma {
			if vb := mb[k]; vb != va {
				fn(k, va, vb)
			}
		}
		for k, vb := range mb {
			if _, ok := ma[k]; !ok {
				fn(k, *new(V), vb)
			}
		}
	}
}
