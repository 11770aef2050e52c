// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"crypto/rand"
	"encoding/binary"
)

const identityValueMin = 1 + 16 + 8 + 4

// newStoreID mints a version 4 UUID.
func newStoreID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the process instead
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

func (id *Identity) encode() []byte {
	v := append([]byte{valueFormat}, id.StoreID[:]...)
	v = binary.BigEndian.AppendUint64(v, id.Boots)
	v = binary.BigEndian.AppendUint32(v, uint32(id.Node))
	return append(v, id.ClusterID...)
}

func (id *Identity) decode(v []byte) error {
	if err := checkValue(keyIdentity, v, identityValueMin); err != nil {
		return err
	}
	copy(id.StoreID[:], v[1:])
	id.Boots = binary.BigEndian.Uint64(v[17:])
	id.Node = int32(binary.BigEndian.Uint32(v[25:]))
	id.ClusterID = string(v[identityValueMin:])
	return nil
}

// Identity is who this directory is, the boot that this Open began included.
func (d *DB) Identity() Identity { return *d.identity.Load() }

// SetIdentity binds the directory, durably, to a node of a cluster.
func (d *DB) SetIdentity(clusterID string, node int32) error {
	return d.setStore(func(c *commit) error {
		id := d.Identity()
		id.ClusterID, id.Node = clusterID, node
		if err := c.batch.Set(keyIdentity, id.encode(), nil); err != nil {
			return err
		}
		d.identity.Store(&id)
		return nil
	})
}

// Stamp is the last one that SetStamp stored; 0 before.
func (d *DB) Stamp() uint64 { return d.stamp.Load() }

// SetStamp stores what Stamp returns, durably. Unlike Identity.Boots it does not move by itself when a directory is opened.
func (d *DB) SetStamp(stamp uint64) error {
	return d.setStore(func(c *commit) error {
		if err := c.batch.Set(keyStamp, binary.BigEndian.AppendUint64([]byte{valueFormat}, stamp), nil); err != nil {
			return err
		}
		d.stamp.Store(stamp)
		return nil
	})
}

// Witness is the highest etcd revision this directory has seen, and of which etcd cluster; zeros before the first SetWitness.
func (d *DB) Witness() (etcdClusterID uint64, revision int64) {
	if w := d.witness.Load(); w != nil {
		return w.cluster, w.revision
	}
	return 0, 0
}

// SetWitness stores what Witness returns, durably.
func (d *DB) SetWitness(etcdClusterID uint64, revision int64) error {
	return d.changeWitness(func(w *witness) { w.cluster, w.revision = etcdClusterID, revision })
}

// Generation is the cluster's generation under which the witness was seen; 0 before the first SetGeneration.
func (d *DB) Generation() int64 {
	if w := d.witness.Load(); w != nil {
		return w.generation
	}
	return 0
}

// SetGeneration stores what Generation returns, durably.
func (d *DB) SetGeneration(gen int64) error {
	return d.changeWitness(func(w *witness) { w.generation = gen })
}

func (d *DB) changeWitness(change func(*witness)) error {
	return d.setStore(func(c *commit) error {
		var w witness
		if old := d.witness.Load(); old != nil {
			w = *old
		}
		change(&w)
		v := binary.BigEndian.AppendUint64([]byte{valueFormat}, w.cluster)
		v = binary.BigEndian.AppendUint64(v, uint64(w.revision))
		v = binary.BigEndian.AppendUint64(v, uint64(w.generation))
		if err := c.batch.Set(keyWitness, v, nil); err != nil {
			return err
		}
		d.witness.Store(&w)
		return nil
	})
}

// setStore runs apply in the committer's turn and waits until what it wrote is durable.
func (d *DB) setStore(apply func(*commit) error) error {
	r := &opRest{apply: apply}
	if err := d.store.change(opStore, r, nil); err != nil {
		return err
	}
	return r.wait()
}
