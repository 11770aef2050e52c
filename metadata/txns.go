// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"fmt"
)

// Transactional ids lie together by shard, as groups do:
//
//	txn/{shard}/{t}               a transactional id
//	gpend/{shard}/{g}/{pid}       what a transaction commits for a group; the shard is the group's
func (k keyspace) txns(shard int32) string { return k.prefix + kindTxn + itoa(int64(shard)) + "/" }
func (k keyspace) txn(shard int32, t string) string {
	return k.txns(shard) + EscapeID(t)
}

// TxnState is a transactional id as stored. Value is opaque here (package gateway/txn owns its encoding). Rev is the token of the next
// change.
type TxnState struct {
	ID    string
	Value []byte
	Rev   Revision
}

// TxnChange is one change of a transactional id, with what becomes of offsets that its transaction would commit.
type TxnChange struct {
	ID  string
	Rev Revision // that it was decided on; 0: there is none of that id
	// Value is the new one; nil leaves it, unless Delete is set.
	Value  []byte
	Delete bool
	Moves  []OffsetsMove
}

// ChangeTxn changes a transactional id, and moves offsets, all or nothing. ErrFenced: the shard is another's, or nobody's. ErrTxnChanged: the id
// is not what the change was decided on. ErrConflict: offsets are not. The answer is the new revision of what was put.
func (s *Store) ChangeTxn(ctx context.Context, co Coordination, t TxnChange) (Revision, error) {
	c := newChange("changing transactional id %q", t.ID)
	c.created(s.keys.coord(co.Shard), Equal, int64(co.Epoch), ErrFenced)
	key := s.keys.txn(co.Shard, t.ID)
	c.unchanged(key, t.Rev, ErrTxnChanged)
	switch {
	case t.Delete:
		c.delete(key)
	case t.Value != nil:
		c.put(key, append(begin(c.op, len(t.Value)), t.Value...))
		c.mark = key
	}
	shards := s.Image().Shards()
	for i := range t.Moves {
		m := &t.Moves[i]
		shard := ShardOf(m.Group, shards)
		pending := s.keys.pending(shard, m.Group, m.Producer)
		c.unchanged(pending, m.Rev, ErrConflict)
		switch {
		case len(m.Rest) > 0:
			c.put(pending, encodePending(m.Rest, c.op))
		case m.Rev != 0:
			c.delete(pending)
		}
		for k := range m.Offsets {
			s.changeOffsets(c, shard, m.Group, &m.Offsets[k], ErrConflict)
		}
	}
	if len(c.ops) == 0 {
		return 0, nil
	}
	return s.commit(ctx, c)
}

// ConfirmTxn tells that a transactional id still is as it was at rev (0: there is none), and the shard this coordinator's: what was decided on
// it holds. The answer is a revision at which it was so. ErrFenced and ErrTxnChanged as for ChangeTxn.
func (s *Store) ConfirmTxn(ctx context.Context, co Coordination, id string, rev Revision) (at Revision, err error) {
	own, key := s.keys.coord(co.Shard), s.keys.txn(co.Shard, id)
	found, at, err := s.readKeys(ctx, own, key)
	switch {
	case err != nil:
	case found[own].CreateRevision != co.Epoch:
		err = ErrFenced
	case found[key].ModRevision != rev:
		err = ErrTxnChanged
	}
	if err != nil {
		return 0, fmt.Errorf("confirming transactional id %q: %w", id, err)
	}
	return at, nil
}

// LoadTxns gives a shard's transactional ids at one revision, at which it was owned in this term. ErrFenced when the term has ended.
func (s *Store) LoadTxns(ctx context.Context, co Coordination, fn func(TxnState) error) error {
	own := s.keys.coord(co.Shard)
	found, at, err := s.readKeys(ctx, own)
	if err != nil {
		return err
	}
	if found[own].CreateRevision != co.Epoch {
		return fmt.Errorf("loading the transactional ids of shard %d: %w", co.Shard, ErrFenced)
	}
	prefix := s.keys.txns(co.Shard)
	_, err = s.readAll(ctx, prefix, at, func(kv *KeyValue) error {
		id, err := UnescapeID(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		t, err := txnState(id, kv)
		if err != nil {
			return err
		}
		return fn(t)
	})
	return err
}

// ReadTxn reads a transactional id, linearizably; any node may. Rev 0: there is none.
func (s *Store) ReadTxn(ctx context.Context, id string) (TxnState, error) {
	key := s.keys.txn(ShardOf(id, s.Image().Shards()), id)
	found, _, err := s.readKeys(ctx, key)
	if err != nil {
		return TxnState{}, fmt.Errorf("reading transactional id %q: %w", id, err)
	}
	kv, there := found[key]
	if !there {
		return TxnState{ID: id}, nil
	}
	return txnState(id, &kv)
}

func txnState(id string, kv *KeyValue) (TxnState, error) {
	b, err := body("transactional id", kv.Value)
	if err != nil {
		return TxnState{}, fmt.Errorf("transactional id %q: %w", id, err)
	}
	return TxnState{ID: id, Value: b, Rev: kv.ModRevision}, nil
}
