// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Versions of ListOffsets that change what is asked for or what a code means.
const (
	listNotAvailable = 5
	listTimeout      = 10
)

// listSpecials gives the first version that knows a special timestamp.
var listSpecials = map[int64]int16{
	broker.SpecialLatest:          1,
	broker.SpecialEarliest:        1,
	broker.SpecialMaxTimestamp:    7,
	broker.SpecialEarliestLocal:   8,
	broker.SpecialLatestTiered:    9,
	broker.SpecialEarliestPending: 11,
}

// lookup is one partition of the request.
type lookup struct {
	req *kmsg.ListOffsetsRequestTopicPartition
	res *kmsg.ListOffsetsResponseTopicPartition
	p   *broker.Partition
}

// listOffsets answers offsets by special timestamps and by time. Lookups that may need the bucket run several at a time, within
// the request's own time.
func (s *Server) listOffsets(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	timeout := lookupTimeout
	if r.Version >= listTimeout && req.TimeoutMillis > 0 {
		timeout = time.Duration(req.TimeoutMillis) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	committed := r.Version >= 2 && req.IsolationLevel == 1

	var slow []lookup
	img := s.awaitRoles(ctx, time.Now().Add(min(timeout, roleWait)), func(l *roleLook) { seeLookups(l, req, r.Version) })
	twice := duplicateLookups(req)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = t.Topic
		ref := s.topicNamed(img, t.Topic)
		// No more than these are appended: lookups keep pointers into the slice.
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		for j := range t.Partitions {
			key := fetchKey{topicKey{name: t.Topic}, t.Partitions[j].Partition}
			answered, again := twice[key]
			if answered {
				continue // a partition that is named twice is refused once
			}
			out.Partitions = append(out.Partitions, kmsg.NewListOffsetsResponseTopicPartition())
			l := lookup{req: &t.Partitions[j], res: &out.Partitions[len(out.Partitions)-1]}
			l.res.Partition = l.req.Partition
			if again {
				twice[key] = true
				l.fail(codeInvalidRequest, r.Version)
				continue
			}
			if s.lookupNow(img, ref, &l, r.Version, committed) {
				slow = append(slow, l)
			}
		}
	}
	s.lookupSlow(ctx, slow, r.Version, committed)
	return resp, nil
}

// seeLookups looks at the roles that a request needs.
func seeLookups(look *roleLook, req *kmsg.ListOffsetsRequest, version int16) {
	for i := range req.Topics {
		t := look.img.Topic(req.Topics[i].Topic)
		for j := range req.Topics[i].Partitions {
			l := lookup{req: &req.Topics[i].Partitions[j]}
			ts := l.req.Timestamp
			look.see(t, l.req.Partition, broker.Need{
				Epoch: l.request(version, false).CurrentEpoch, Latest: ts >= 0 || ts == broker.SpecialLatest || ts == broker.SpecialMaxTimestamp,
			})
		}
	}
}

// duplicateLookups finds partitions that the request names more than once. The values are the caller's.
func duplicateLookups(req *kmsg.ListOffsetsRequest) map[fetchKey]bool {
	var twice map[fetchKey]bool
	seen := make(map[fetchKey]bool)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			key := fetchKey{topicKey{name: req.Topics[i].Topic}, req.Topics[i].Partitions[j].Partition}
			if seen[key] {
				if twice == nil {
					twice = make(map[fetchKey]bool)
				}
				twice[key] = false
			}
			seen[key] = true
		}
	}
	return twice
}

// lookupNow answers what needs no search and tells whether a search is needed.
func (s *Server) lookupNow(img *metadata.Image, ref *topicRef, l *lookup, version int16, committed bool) (slow bool) {
	if ref == nil {
		l.fail(codeUnknownTopicOrPartition, version)
		return false
	}
	ts := l.req.Timestamp
	if first, ok := listSpecials[ts]; ts < 0 && (!ok || version < first) {
		l.fail(codeUnsupportedVersion, version)
		return false
	}
	var code Code
	if l.p, code = s.partition(img, ref, l.req.Partition); code != codeNone {
		l.fail(code, version)
		return false
	}
	if ts >= 0 || ts == broker.SpecialMaxTimestamp {
		return true
	}
	at, err := l.p.Special(ts, l.request(version, committed))
	l.set(at, err, version)
	return false
}

func (l *lookup) request(version int16, committed bool) broker.LookupRequest {
	current := record.NoEpoch
	if version >= 4 {
		current = record.Epoch(l.req.CurrentLeaderEpoch)
	}
	return broker.LookupRequest{CurrentEpoch: current, ReadCommitted: committed}
}

// lookupSlow searches, a bounded number of partitions at a time. All of them end with ctx.
func (s *Server) lookupSlow(ctx context.Context, slow []lookup, version int16, committed bool) {
	if len(slow) == 0 {
		return
	}
	search := func(l *lookup) {
		if err := ctx.Err(); err != nil {
			l.set(broker.TimeOffset{}, err, version)
			return
		}
		var at broker.TimeOffset
		var err error
		if l.req.Timestamp == broker.SpecialMaxTimestamp {
			at, err = l.p.MaxTimestamp(ctx, l.request(version, committed))
		} else {
			at, err = l.p.OffsetForTime(ctx, l.req.Timestamp, l.request(version, committed))
		}
		l.set(at, err, version)
	}
	if len(slow) == 1 {
		search(&slow[0])
		return
	}
	var g errgroup.Group
	g.SetLimit(maxLookups)
	for i := range slow {
		g.Go(func() error {
			search(&slow[i])
			return nil
		})
	}
	_ = g.Wait() // no lookup returns an error: each has its own code
}

func (l *lookup) set(at broker.TimeOffset, err error, version int16) {
	if err != nil {
		l.fail(codeOf(err), version)
		return
	}
	l.res.Offset, l.res.Timestamp = int64(at.Offset), at.Timestamp
	l.res.LeaderEpoch = int32(at.Epoch)
	if at.Offset == record.NoOffset {
		l.res.LeaderEpoch = int32(record.NoEpoch)
	}
}

// fail answers a code with no offset beside it (G6).
func (l *lookup) fail(code Code, version int16) {
	if code == codeOffsetNotAvailable && version < listNotAvailable {
		code = codeLeaderNotAvailable
	}
	l.res.Offset, l.res.Timestamp, l.res.LeaderEpoch = int64(record.NoOffset), -1, int32(record.NoEpoch)
	l.res.ErrorCode = code.int16()
}
