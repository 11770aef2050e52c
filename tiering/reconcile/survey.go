// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// survey is one look at a bucket.
type survey struct {
	store   objstore.Store
	cluster string
	known   map[string]bool // objects of the manifest
	pages   map[string]manifest.Page
	wanted  map[record.TopicID]bool

	mu  sync.Mutex
	out *Bucket
}

// Survey lists the objects of a cluster, and reads the footer of each segment that its metadata does not know of, of topics that exist or
// that a data directory holds.
func Survey(ctx context.Context, store objstore.Store, cluster string, state *metadata.Frozen, nodes []Node) (*Bucket, error) {
	s := &survey{store: store, cluster: cluster, known: map[string]bool{}, pages: map[string]manifest.Page{}, wanted: map[record.TopicID]bool{},
		out: &Bucket{Present: map[string]bool{}, Found: map[record.PartitionID][]Segment{}, Pages: map[string][]manifest.Entry{}}}
	for _, n := range nodes {
		for _, l := range n.Logs {
			s.wanted[l.ID.Topic] = true
		}
	}
	for _, t := range state.Topics {
		s.wanted[t.ID] = !t.Deleting
	}
	if err := s.know(state); err != nil {
		return nil, err
	}
	if err := s.readPages(ctx); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(surveyParallel)
	strange := map[record.TopicID]int{}
	err := store.List(gctx, cluster+"/log/", "", func(i objstore.Info) error {
		s.mu.Lock()
		s.out.Present[i.Key] = true
		s.mu.Unlock()
		id, isSegment := s.parse(i.Key)
		wanted, exists := s.wanted[id.Topic]
		switch {
		case isSegment && !exists:
			strange[id.Topic]++
		case isSegment && wanted && !s.known[i.Key]:
			g.Go(func() error { return s.read(gctx, id, i) })
		}
		return nil
	})
	err = errors.Join(err, g.Wait())
	for id, n := range strange {
		s.out.Broken = append(s.out.Broken, fmt.Sprintf("topic %s: %d segments are left out: neither the backup nor a data directory knows it, so it was deleted, or it is younger than the backup and its nodes are lost", id, n))
	}
	slices.Sort(s.out.Broken)
	return s.out, err
}

// know gathers what the manifests name.
func (s *survey) know(state *metadata.Frozen) error {
	for id, p := range state.Partitions {
		for _, v := range p.Segments {
			if v.Base < p.Head.FoldedEnd || v.Base >= p.Head.TieredEnd {
				continue // folded, or dead: also what a reconcile that was cut short had put there
			}
			e, err := manifest.DecodeEntry(v.Value)
			if err != nil {
				return fmt.Errorf("entry of %s at %d: %w", id, v.Base, err)
			}
			s.known[e.Object] = true
		}
		for _, raw := range p.Head.Pages {
			page, err := manifest.DecodePage(raw)
			if err != nil {
				return fmt.Errorf("page pointer of %s: %w", id, err)
			}
			s.pages[page.Object] = page
		}
	}
	return nil
}

func (s *survey) readPages(ctx context.Context) error {
	for object, page := range s.pages {
		b, err := s.store.Get(ctx, object, 0, page.Len, nil)
		if errors.Is(err, objstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading page %s: %w", object, err)
		}
		entries, err := manifest.ReadPage(&page, b)
		if err != nil {
			s.out.Broken = append(s.out.Broken, fmt.Sprintf("page %s: %s", object, err))
			continue
		}
		s.out.Pages[object] = entries
		for i := range entries {
			s.known[entries[i].Object] = true
		}
	}
	return nil
}

// parse reads "<cluster>/log/<topic>/<partition>/<base>-<attempt>.seg".
func (s *survey) parse(key string) (id record.PartitionID, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, s.cluster+"/log/"), "/")
	if len(parts) != 3 || !strings.HasSuffix(parts[2], ".seg") {
		return id, false
	}
	topic, err := record.ParseTopicIDHex(parts[0])
	n, indexErr := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || indexErr != nil || n < 0 {
		return id, false
	}
	return record.PartitionID{Topic: topic, Index: int32(n)}, true
}

// read takes one segment in, if it is whole and says that it is what its name says. Only an answer that may be another one later ends the
// survey.
func (s *survey) read(ctx context.Context, id record.PartitionID, i objstore.Info) error {
	seg, err := s.readSegment(ctx, i)
	if err == nil && (seg.id != id || seg.cluster != s.cluster) {
		err = fmt.Errorf("it says that it belongs to %s of cluster %s", seg.id, seg.cluster)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.out.Found[id] = append(s.out.Found[id], seg.Segment)
	case errors.Is(err, objstore.ErrUnavailable) || ctx.Err() != nil:
		return fmt.Errorf("reading %s: %w", i.Key, err)
	default:
		s.out.Broken = append(s.out.Broken, fmt.Sprintf("segment %s is left out: %s", i.Key, err))
	}
	return nil
}

type readSegment struct {
	Segment
	id      record.PartitionID
	cluster string
}

func (s *survey) readSegment(ctx context.Context, i objstore.Info) (out readSegment, err error) {
	x, err := s.index(ctx, i)
	if err != nil {
		return out, err
	}
	info, err := s.store.Stat(ctx, i.Key)
	if err != nil {
		return out, err
	}
	crc, err := strconv.ParseUint(info.Metadata[objstore.MetaCRC32C], 16, 32)
	if err != nil {
		return out, fmt.Errorf("its checksum %q cannot be read", info.Metadata[objstore.MetaCRC32C])
	}
	out.id = record.PartitionID{Topic: x.Info.Topic, Index: x.Info.Partition}
	out.cluster, out.LeaderEpoch, out.TopicName = x.Info.ClusterID, x.Info.LeaderEpoch, x.Info.TopicName
	out.Entry = manifest.FromInfo(&x.Info, i.Key, uint32(crc))
	if x.Producers.Count == 0 {
		return out, nil
	}
	b, err := s.store.Get(ctx, i.Key, x.Producers.Pos, int64(x.Producers.Len), nil)
	if err != nil {
		return out, err
	}
	producers, err := segment.DecodeProducers(b, x.Producers)
	for _, p := range producers {
		out.MaxPID = max(out.MaxPID, p.ID)
	}
	return out, err
}

// index reads the end of the object, once more when the footer is longer than guessed.
func (s *survey) index(ctx context.Context, i objstore.Info) (*segment.Index, error) {
	for want := min(i.Size, int64(footerGuess)); ; {
		tail, err := s.store.Get(ctx, i.Key, i.Size-want, want, nil)
		if err != nil {
			return nil, err
		}
		x, err := segment.ReadIndex(tail, i.Size)
		var more *segment.NeedMore
		if !errors.As(err, &more) || more.Bytes <= want || more.Bytes > i.Size {
			return x, err
		}
		want = more.Bytes
	}
}
