// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/varve/varve/metadata/config"
)

// Open connects the node with the cluster's truth: it finds the cluster in the store, or makes a new one when neither the store nor
// the bucket nor the data directory knows of any, and refuses to start when they contradict each other. While the store is away
// it tries again until ctx ends.
func Open(ctx context.Context, kv KV, o Options) (*Store, error) {
	s, err := newStore(kv, o)
	if err != nil {
		return nil, err
	}
	if err := s.identify(ctx); err != nil {
		return nil, err
	}
	if err := s.saveWitness(); err != nil {
		return nil, fmt.Errorf("recording the metadata revision beside the data: %w", err)
	}
	if err := s.saveGeneration(); err != nil {
		return nil, fmt.Errorf("recording the cluster's generation beside the data: %w", err)
	}
	s.metrics.register(o.Registerer)
	return s, nil
}

// Examine tells why Open would refuse, as far as that can be told of a node without data. It changes nothing: a start that is refused should
// leave nothing behind.
func Examine(ctx context.Context, kv KV, o Options) error {
	s, err := newStore(kv, o)
	if err != nil {
		return err
	}
	found, err := s.readPatiently(ctx, s.keys.key(keyGen), s.keys.key(keyVersion), s.keys.key(keyBucket))
	if err != nil {
		return err
	}
	if _, ok := found[s.keys.key(keyGen)]; !ok {
		return s.mayMint()
	}
	return s.judgeIdentity(found)
}

// MayBegin tells why a store that is still to be made may not be the cluster's: others know one already.
func MayBegin(o Options) error {
	s := Store{opts: o.withDefaults()}
	return s.mayMint()
}

func newStore(kv KV, o Options) (*Store, error) {
	o = o.withDefaults()
	if o.LeaseTTL < minLeaseTTL {
		return nil, fmt.Errorf("lease of %s: at least %s", o.LeaseTTL, minLeaseTTL)
	}
	if _, err := config.ResolveBroker(o.StaticConfig, nil, nil); err != nil {
		return nil, err
	}
	s := &Store{
		kv: kv, opts: o, keys: newKeyspace(o.Prefix), log: o.Logger, metrics: newMetrics(),
		history: newHistory(o.Witness), failure: make(chan struct{}), reload: make(chan struct{}, 1),
	}
	s.catchUp.turn = make(chan struct{}, 1)
	s.mu.changed = make(chan struct{})
	s.mu.subscribers = map[int]func(old, new *Image){}
	s.mu.recorded = map[StoreBoots]bool{}
	s.image.Store(&Image{})
	return s, nil
}

// identify applies the identity table (docs/formats/metadata.md, "Who belongs together").
func (s *Store) identify(ctx context.Context) error {
	if err := s.refuseEmpty(ctx); err != nil {
		return err
	}
	if err := s.meetGeneration(ctx); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		found, err := s.readPatiently(ctx, s.keys.key(keyGen), s.keys.key(keyVersion), s.keys.key(keyBucket))
		if err != nil {
			return err
		}
		if _, ok := found[s.keys.key(keyGen)]; !ok {
			if err := s.mayMint(); err != nil {
				return err
			}
			if err := s.mint(ctx); err != nil && !errors.Is(err, ErrConflict) {
				return err
			}
			continue // read what is there now: ours, or that of a node that was quicker
		}
		return s.judgeIdentity(found)
	}
}

// judgeIdentity takes up the cluster that the store knows, and compares it with what else knows one.
func (s *Store) judgeIdentity(found map[string]KeyValue) error {
	kv := found[s.keys.key(keyGen)]
	var g genJSON
	if err := decodeJSON("cluster generation", kv.Value, &g); err != nil {
		return err
	}
	s.clusterID, s.gen, s.genRev = g.ClusterID, g.Gen, kv.ModRevision
	_, confirmed := found[s.keys.key(keyBucket)]
	s.fresh = !confirmed
	if err := s.checkIdentity(); err != nil {
		return err
	}
	v, ok := found[s.keys.key(keyVersion)]
	if !ok {
		return fmt.Errorf("%w: cluster/gen is there, cluster/version is not", ErrCorrupt)
	}
	_, err := s.checkVersion(&v)
	return err
}

// refuseEmpty: a store that holds no cluster although others know one was emptied or is another one. That is told at once, and
// with the remedy of the identity table: it would else be taken for a store that went back, after a minute's doubt.
func (s *Store) refuseEmpty(ctx context.Context) error {
	if s.opts.BucketClusterID == "" && s.opts.DataClusterID == "" {
		return nil
	}
	res, err := s.rangeOnce(ctx, RangeRequest{Key: s.keys.key(keyGen)})
	if err != nil || len(res.KVs) > 0 {
		return nil // the patient reading that follows tells
	}
	return s.mayMint()
}

// mayMint: the store knows no cluster. A new one is made only when nobody else knows one either.
func (s *Store) mayMint() error {
	o := &s.opts
	switch {
	case o.BucketClusterID != "":
		return fmt.Errorf("%w but the bucket holds cluster %q (id %s): use the etcd that the cluster has; if it is lost, restore one from a backup "+
			"and run \"varve restore --reconcile\" (docs/operations.md); for a new cluster take another prefix in --bucket",
			ErrEtcdEmpty, o.ClusterName, o.BucketClusterID)
	case o.DataClusterID != "":
		return fmt.Errorf("%w: the data directory belongs to cluster %s, but etcd and the bucket hold no cluster %q: check --etcd, --bucket and --cluster, or use an empty --data directory",
			ErrDataOfOther, o.DataClusterID, o.ClusterName)
	}
	return nil
}

// checkIdentity: the store knows a cluster; the bucket and the data directory must agree.
func (s *Store) checkIdentity() error {
	o := &s.opts
	switch {
	case o.BucketClusterID == "" && !s.fresh:
		return fmt.Errorf("%w: etcd holds cluster %q (id %s), the bucket does not know it: check --bucket",
			ErrBucketEmpty, o.ClusterName, s.clusterID)
	case o.BucketClusterID != "" && o.BucketClusterID != s.clusterID:
		return fmt.Errorf("%w: etcd holds cluster id %s, the bucket names %s for %q: check --etcd, --bucket and --cluster",
			ErrBucketOfOther, s.clusterID, o.BucketClusterID, o.ClusterName)
	case o.DataClusterID != "" && o.DataClusterID != s.clusterID:
		return fmt.Errorf("%w: the data directory belongs to cluster id %s, etcd holds %s: check --data and --etcd, or use an empty --data directory",
			ErrDataOfOther, o.DataClusterID, s.clusterID)
	case o.DataClusterID != "" && o.DataNode != o.NodeID:
		return fmt.Errorf("%w: it belongs to node %d, this is --node-id %d: use that node id, or an empty --data directory",
			ErrDataOfOtherNode, o.DataNode, o.NodeID)
	}
	return nil
}

func (s *Store) mint(ctx context.Context) error {
	id := newUUID()
	clusterID := base64.RawURLEncoding.EncodeToString(id[:])
	c := newChange("minting cluster %q", s.opts.ClusterName)
	c.unchanged(s.keys.key(keyGen), 0, ErrConflict)
	c.unchanged(s.keys.key(keyVersion), 0, ErrConflict)
	c.put(s.keys.key(keyGen), encodeJSON(genJSON{ClusterID: clusterID, Gen: 1}, c.op))
	c.put(s.keys.key(keyVersion), encodeJSON(versionJSON{Version: s.opts.Versions.Max}, c.op))
	c.mark = s.keys.key(keyGen)
	_, err := s.commit(ctx, c)
	if err == nil {
		s.log.Info("metadata: new cluster", "name", s.opts.ClusterName, "id", clusterID, "version", s.opts.Versions.Max)
	}
	return err
}

// readPatiently is readKeys that waits for the store as long as ctx lives.
func (s *Store) readPatiently(ctx context.Context, keys ...string) (map[string]KeyValue, error) {
	for {
		found, _, err := s.readKeys(ctx, keys...)
		if err == nil || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return found, err
		}
		s.log.Warn("metadata: waiting for the store", "error", err)
	}
}

// checkVersion reads the cluster version and refuses one that this binary cannot run.
func (s *Store) checkVersion(kv *KeyValue) (int, error) {
	var v versionJSON
	if err := decodeJSON("cluster/version", kv.Value, &v); err != nil {
		return 0, err
	}
	switch can := s.opts.Versions; {
	case v.Version > can.Max:
		return v.Version, &ErrNewerVersion{What: "cluster version", Have: v.Version, Can: can.Max}
	case v.Version < can.Min:
		return v.Version, fmt.Errorf("%w: the cluster writes version %d, this binary runs %d to %d: start an older varve and run \"varve cluster upgrade\" first",
			ErrVersionRange, v.Version, can.Min, can.Max)
	}
	return v.Version, nil
}

// ConfirmBucket records that the bucket names this cluster. From then on a bucket that does not is refused.
func (s *Store) ConfirmBucket(ctx context.Context) error {
	c := newChange("recording that the bucket names cluster %s", s.clusterID)
	c.unchanged(s.keys.key(keyBucket), 0, ErrConflict)
	c.put(s.keys.key(keyBucket), encodeJSON(bucketJSON{ClusterID: s.clusterID}, c.op))
	c.mark = s.keys.key(keyBucket)
	if _, err := s.commit(ctx, c); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	s.fresh = false
	return nil
}

// UpgradeCluster lets the cluster write a newer version. Every registered node must be able to run it; one that registers
// meanwhile contends on the same transaction.
func (s *Store) UpgradeCluster(ctx context.Context, to int) error {
	for range maxConflicts {
		found, _, err := s.readKeys(ctx, s.keys.key(keyVersion))
		if err != nil {
			return err
		}
		kv := found[s.keys.key(keyVersion)]
		now, err := s.checkVersion(&kv)
		if err != nil {
			return err
		}
		if now == to {
			return nil
		}
		if to < now {
			return fmt.Errorf("%w: the cluster writes version %d already and cannot go back to %d", ErrVersionRange, now, to)
		}
		if !s.opts.Versions.Contains(to) {
			return fmt.Errorf("%w: this binary runs %d to %d, not %d", ErrVersionRange, s.opts.Versions.Min, s.opts.Versions.Max, to)
		}
		at, err := s.allCanRun(ctx, to)
		if err != nil {
			return err
		}
		prefix := s.keys.key(kindBroker)
		c := newChange("raising the cluster version from %d to %d", now, to)
		c.unchanged(s.keys.key(keyVersion), kv.ModRevision, ErrConflict)
		c.require(Compare{Key: prefix, End: prefixEnd(prefix), Target: TargetModRevision, Relation: Less, Number: int64(at) + 1}, ErrConflict)
		c.put(s.keys.key(keyVersion), encodeJSON(versionJSON{Version: to}, c.op))
		c.mark = s.keys.key(keyVersion)
		if _, err = s.commit(ctx, c); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("raising the cluster version to %d: %w", to, ErrConflict)
}

// allCanRun reads the registrations and refuses a version that one of them cannot run.
func (s *Store) allCanRun(ctx context.Context, version int) (Revision, error) {
	prefix := s.keys.key(kindBroker)
	return s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		node, err := parseNode(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		b, err := decodeBroker(node, kv)
		if err != nil {
			return err
		}
		if !b.Versions.Contains(version) {
			return fmt.Errorf("%w: node %d runs versions %d to %d: upgrade it first", ErrVersionRange, node, b.Versions.Min, b.Versions.Max)
		}
		return nil
	})
}

// Status tells about the store behind.
func (s *Store) Status(ctx context.Context) (Status, error) { return s.kv.Status(ctx) }
