// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/varve/varve/record"
)

// PartitionLoad is what comes in at the leader of a partition, in bytes per second.
type PartitionLoad struct {
	ID   PartitionID
	Rate int64
}

// NodeLoad is a node's report of the partitions that it leads.
type NodeLoad struct {
	Node  record.NodeID
	Loads []PartitionLoad
	Rev   Revision
}

// Session is the newest registration that this Store made, nil before the first. It may be lost by now.
func (s *Store) Session() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.session
}

// PutLoad makes a report the node's newest; it goes when the registration ends. Only the controller reads reports, when it wants to.
func (s *Store) PutLoad(ctx context.Context, x *Session, loads []PartitionLoad) error {
	c := newChange("reporting the load of node %d", x.node)
	c.created(x.key, Equal, int64(x.incarnation), ErrSessionLost)
	c.mark = s.keys.load(x.node)
	b := begin(c.op, 8+24*len(loads))
	b = binary.AppendVarint(b, int64(len(loads)))
	for _, l := range loads {
		b = append(b, l.ID.Topic[:]...)
		b = binary.AppendVarint(b, int64(l.ID.Index))
		b = binary.AppendVarint(b, l.Rate)
	}
	c.ops = append(c.ops, Op{Kind: OpPut, Key: c.mark, Value: b, Lease: x.lease})
	_, err := s.commit(ctx, c)
	return err
}

// ReadLoads reads the reports of all registered nodes.
func (s *Store) ReadLoads(ctx context.Context) (out []NodeLoad, err error) {
	prefix := s.keys.key(kindLoad)
	_, err = s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		node, err := parseNode(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		loads, err := decodeLoad(kv.Value)
		if err != nil {
			return fmt.Errorf("load of node %d: %w", node, err)
		}
		out = append(out, NodeLoad{Node: node, Loads: loads, Rev: kv.ModRevision})
		return nil
	})
	return out, err
}

func decodeLoad(value []byte) ([]PartitionLoad, error) {
	d := decode("load", value)
	loads := make([]PartitionLoad, d.count(18))
	for i := range loads {
		loads[i] = PartitionLoad{ID: PartitionID{Topic: record.TopicID(d.uuid()), Index: d.int32()}, Rate: d.varint()}
	}
	return loads, d.end()
}
