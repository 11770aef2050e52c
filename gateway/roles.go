// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// roleLook is one look at all partitions of a request: is this node to answer for one of them, and cannot yet?
type roleLook struct {
	s      *Server
	img    *metadata.Image
	late   time.Time // until when the longest wait is worth it; zero: there is none
	behind bool      // the image may be older than what the client was told
}

// see looks at one partition. t is what the image knows by the name, or id, that the client gave.
func (l *roleLook) see(t *metadata.Topic, index int32, n broker.Need) {
	if t == nil {
		l.behind = true
		return
	}
	if t.Deleting || index < 0 {
		return
	}
	switch standing, until := l.s.broker.Standing(record.PartitionID{Topic: t.ID, Index: index}, n); standing {
	case broker.Late:
		if until.After(l.late) {
			l.late = until
		}
	case broker.Behind:
		l.behind = true
	}
}

// anyLeader is what requests need that know no leader epoch.
var anyLeader = broker.Need{Epoch: record.NoEpoch}

// awaitRoles returns the image to answer from once this node serves those of a request's partitions that it leads, or after a wait that
// ends by then. look is called for each look at them. A client may have heard of a leader from a node that knew earlier than
// this one: the image is made as new as the request before this node says that it is not the leader, or knows no such topic.
func (s *Server) awaitRoles(ctx context.Context, by time.Time, look func(*roleLook)) *metadata.Image {
	current := false
	for {
		changed := s.broker.RolesChanged()
		l := roleLook{s: s, img: s.meta.Image()}
		look(&l)
		ask := l.behind && !current && s.broker.MayServe()
		if !ask && l.late.IsZero() || s.isDraining() {
			return l.img
		}
		until := by
		if !ask && l.late.Before(by) {
			until = l.late
		}
		if !time.Now().Before(until) {
			return l.img
		}
		if ask {
			current = true
			s.catchUp(ctx, until)
			continue
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-changed:
		case <-t.C:
		case <-s.draining:
		case <-ctx.Done():
			t.Stop()
			return l.img
		}
		t.Stop()
	}
}

// catchUp makes the image as new as the request, if the metadata store answers in time. In vain or not, the answer says what is known.
func (s *Server) catchUp(ctx context.Context, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	_ = s.meta.CatchUp(ctx)
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}
