// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
)

// writeTxnMarkers ends transactions on the partitions that are led here. Only other nodes may ask for it: a marker makes records visible, or
// hides them for good.
func (s *Server) writeTxnMarkers(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.WriteTxnMarkersRequest)
	if s.cfg.InterBroker == "" || r.Listener != s.cfg.InterBroker {
		return markersAnswer(req, func(int) Code { return codeClusterAuthorizationFailed }), nil
	}
	return s.applyTxnMarkers(ctx, req), nil
}

// markerAppend is one marker on its way into one partition.
type markerAppend struct {
	p    *broker.Partition // nil: refused with code
	code Code
	pend broker.Pending
}

// applyTxnMarkers appends the markers and waits until all of them are committed, or have waited long enough. The coordinator calls it for
// what its own node leads.
func (s *Server) applyTxnMarkers(ctx context.Context, req *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
	var appends []markerAppend
	var markers []broker.TxnMarker
	var of []int // the marker of each append
	img := s.meta.Image()
	found := 0
	for i := range req.Markers {
		markers = append(markers, markerOf(&req.Markers[i]))
		for j := range req.Markers[i].Topics {
			t := &req.Markers[i].Topics[j]
			for _, index := range t.Partitions {
				a := markerAppend{code: codeRequestTimedOut}
				if len(appends) < maxRequestPartitions {
					a.p, a.code = s.markerPartition(img, t, index)
				}
				if a.p != nil {
					found++
				}
				appends, of = append(appends, a), append(of, i)
			}
		}
	}
	if found > 0 {
		ctx, cancel := context.WithTimeout(ctx, markerWait)
		defer cancel()
		var wait broker.Wait
		wait.Init(found)
		for i := range appends {
			if a := &appends[i]; a.p != nil {
				a.p.AppendMarker(ctx, &markers[of[i]], &wait, &a.pend)
			}
		}
		s.awaitMarkers(ctx, appends, &wait)
	}
	return markersAnswer(req, func(i int) Code {
		a := &appends[i]
		if a.p == nil {
			return a.code
		}
		code := codeOf(a.pend.Err)
		if code == codeUnknownServerError {
			s.complain("a transaction's marker failed", "partition", a.p.ID(), "error", a.pend.Err)
		}
		return code
	})
}

// markerPartition finds the partition, by the topic's id where the request has it: a marker must not end up in another topic of that name.
func (s *Server) markerPartition(img *metadata.Image, t *kmsg.WriteTxnMarkersRequestMarkerTopic, index int32) (*broker.Partition, Code) {
	var ref *topicRef
	if id, ok := markerTopicOf(t); ok {
		ref = s.topicWithID(img, id)
	} else {
		ref = s.topicNamed(img, t.Topic)
	}
	if ref == nil {
		return nil, codeUnknownTopicOrPartition
	}
	return s.partition(img, ref, index)
}

// awaitMarkers returns once every append is decided, by the broker or by the end of the time.
func (s *Server) awaitMarkers(ctx context.Context, appends []markerAppend, wait *broker.Wait) {
	select {
	case <-wait.C():
		return
	case <-ctx.Done():
	}
	for i := range appends {
		if a := &appends[i]; a.p != nil {
			a.p.Expire(&a.pend)
		}
	}
	<-wait.C()
}

// markersAnswer gives each partition of the request its code, in the request's order.
func markersAnswer(req *kmsg.WriteTxnMarkersRequest, code func(i int) Code) *kmsg.WriteTxnMarkersResponse {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	n := 0
	for i := range req.Markers {
		m := kmsg.NewWriteTxnMarkersResponseMarker()
		m.ProducerID = req.Markers[i].ProducerID
		for j := range req.Markers[i].Topics {
			t := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			t.Topic = req.Markers[i].Topics[j].Topic
			for _, index := range req.Markers[i].Topics[j].Partitions {
				p := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				p.Partition, p.ErrorCode = index, code(n).int16()
				t.Partitions = append(t.Partitions, p)
				n++
			}
			m.Topics = append(m.Topics, t)
		}
		resp.Markers = append(resp.Markers, m)
	}
	return resp
}
