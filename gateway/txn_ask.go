// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Tagged fields between nodes, beside those of WriteTxnMarkers.
const (
	// revisionTag of a transaction in the answer of AddPartitionsToTxn is the metadata revision at which it was so (8 bytes).
	revisionTag = 10000
	// versionTag of AddOffsetsToTxn is the transaction version that the client speaks (1 byte).
	versionTag = 10000
)

func appendRevision(r metadata.Revision) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(r))
}

func setTopicTag(tags *kmsg.Tags, id record.TopicID) {
	tags.Set(topicIDTag, append([]byte(nil), id[:]...))
}

func topicTagOf(tags *kmsg.Tags) (id record.TopicID) {
	tags.Each(func(tag uint32, value []byte) {
		if tag == topicIDTag && len(value) == len(id) {
			copy(id[:], value)
		}
	})
	return id
}

func revisionTagOf(tags *kmsg.Tags) (r metadata.Revision) {
	tags.Each(func(tag uint32, value []byte) {
		if tag == revisionTag && len(value) == 8 {
			r = metadata.Revision(binary.BigEndian.Uint64(value))
		}
	})
	return r
}

func topicName(img *metadata.Image, id record.TopicID) string {
	if t := img.TopicByID(id); t != nil {
		return t.Name
	}
	return ""
}

// askNode has another node serve a request, or this one itself.
func (s *Server) askNode(ctx context.Context, node record.NodeID, req kmsg.Request) (kmsg.Response, error) {
	if node != s.cfg.NodeID {
		return s.broker.Ask(ctx, node, req)
	}
	a := s.table.serves(req.Key(), req.GetVersion())
	if a == nil || a.serve == nil {
		return nil, fmt.Errorf("%s version %d is not served", kmsg.NameForKey(req.Key()), req.GetVersion())
	}
	return a.serve(s, ctx, &Request{Key: req.Key(), Version: req.GetVersion(), Listener: s.cfg.InterBroker, Principal: anonymous, Body: req})
}

// fromPeer tells that a request came from another node, or this one.
func (s *Server) fromPeer(r *Request) bool {
	return r.Listener == s.cfg.InterBroker && s.cfg.InterBroker != ""
}

// askCoordinator has the coordinator of a transactional id serve a request; code tells what an answer says of it. One that moves is looked for
// a moment.
func (s *Server) askCoordinator(ctx context.Context, id string, req kmsg.Request, code func(kmsg.Response) Code) (kmsg.Response, Code) {
	for until := time.Now().Add(coordinatorWait); ; {
		said := codeCoordinatorNotAvailable
		img := s.meta.Image()
		if img.Shards() > 0 {
			if owner, held := img.Coordinator(metadata.ShardOf(id, img.Shards())); held && registered(img, owner) {
				resp, err := s.askNode(ctx, owner.Node, req)
				if err == nil {
					if said = code(resp); said != codeNotCoordinator && said != codeCoordinatorLoadInProgress {
						return resp, said
					}
				} else {
					s.log.Debug("the coordinator of a transactional id cannot be asked", "id", id, "node", owner.Node, "error", err)
				}
			}
		}
		if !time.Now().Before(until) || !pause(ctx, coordinatorPause) {
			return nil, said
		}
	}
}

// txnAdd is what a partition's leader asks the coordinator.
type txnAdd struct {
	id         string
	producer   txn.Producer
	partitions []record.PartitionID
	verifyOnly bool
}

// addToTxn asks the coordinator whether partitions are part of a producer's open transaction, and makes them so unless verifyOnly. There is a code
// for each partition, and the revision at which that was so; for CONCURRENT_TRANSACTIONS it is that of the decision.
func (s *Server) addToTxn(ctx context.Context, a *txnAdd) (codes []Code, at metadata.Revision) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.SetVersion(5)
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = a.id, a.producer.ID, a.producer.Epoch, a.verifyOnly
	img := s.meta.Image()
	for _, p := range a.partitions {
		topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		topic.Topic, topic.Partitions = topicName(img, p.Topic), []int32{p.Index}
		setTopicTag(&topic.UnknownTags, p.Topic)
		t.Topics = append(t.Topics, topic)
	}
	req.Transactions = append(req.Transactions, t)
	resp, code := s.askCoordinator(ctx, a.id, req, func(resp kmsg.Response) Code {
		first := codeCoordinatorNotAvailable
		r, _ := resp.(*kmsg.AddPartitionsToTxnResponse)
		if r != nil && r.ErrorCode == 0 && len(r.Transactions) == 1 && len(r.Transactions[0].Topics) == len(a.partitions) {
			codes = codes[:0]
			for i := range r.Transactions[0].Topics {
				for _, p := range r.Transactions[0].Topics[i].Partitions {
					codes = append(codes, Code(p.ErrorCode))
				}
			}
			if len(codes) == len(a.partitions) {
				first = codes[0]
			}
		}
		return first
	})
	if r, _ := resp.(*kmsg.AddPartitionsToTxnResponse); r != nil && len(codes) == len(a.partitions) {
		return codes, revisionTagOf(&r.Transactions[0].UnknownTags)
	}
	codes = codes[:0]
	for range a.partitions {
		codes = append(codes, code)
	}
	return codes, 0
}
