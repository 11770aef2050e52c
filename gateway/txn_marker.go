// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Tagged fields of WriteTxnMarkers between nodes. Kafka's own tags count up from 0.
const (
	// decisionTag of a marker is the metadata revision of the decision to end the transaction (8 bytes).
	decisionTag = 10000
	// transactionalIDTag of a marker is the transactional id.
	transactionalIDTag = 10001
	// topicIDTag of a topic is its id (16 bytes), which counts instead of the name.
	topicIDTag = 10000
)

// bumpedVersion is the first transaction version of which each transaction has an epoch of its own.
const bumpedVersion = 2

// tagMarker says in a marker which decision it carries out.
func tagMarker(m *kmsg.WriteTxnMarkersRequestMarker, decision metadata.Revision, transactionalID string) {
	m.UnknownTags.Set(decisionTag, binary.BigEndian.AppendUint64(nil, uint64(decision)))
	m.UnknownTags.Set(transactionalIDTag, []byte(transactionalID))
}

// tagMarkerTopic names the topic of markers by its id.
func tagMarkerTopic(t *kmsg.WriteTxnMarkersRequestMarkerTopic, id record.TopicID) {
	t.UnknownTags.Set(topicIDTag, id[:])
}

// markerOf reads what a request says of a marker.
func markerOf(m *kmsg.WriteTxnMarkersRequestMarker) broker.TxnMarker {
	out := broker.TxnMarker{
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, Bumped: m.TransactionVersion >= bumpedVersion, Commit: m.Committed,
		CoordinatorEpoch: m.CoordinatorEpoch,
	}
	m.UnknownTags.Each(func(tag uint32, value []byte) {
		switch {
		case tag == decisionTag && len(value) == 8:
			out.Decision = metadata.Revision(binary.BigEndian.Uint64(value))
		case tag == transactionalIDTag:
			out.TransactionalID = string(value)
		}
	})
	return out
}

// markerTopicOf reads the id of a request's topic; ok is false when only the name is given.
func markerTopicOf(t *kmsg.WriteTxnMarkersRequestMarkerTopic) (id record.TopicID, ok bool) {
	t.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == topicIDTag && len(value) == len(id) {
			copy(id[:], value)
			ok = true
		}
	})
	return id, ok
}
