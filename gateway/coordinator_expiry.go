// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
)

// consumerProtocol is the protocol type of consumers, whose subscriptions can be read.
const consumerProtocol = "consumer"

// subscribed tells which topics the group's members read; known is false when that cannot be told.
func (sh *shard) subscribed(e *groupEntry, now time.Time) (reads func(topic string) bool, known bool) {
	if e.c != nil {
		e.c.Resolve(now, sh.consumerEnv(e.id))
		return e.c.Reads, true
	}
	if e.g.ProtocolType() != consumerProtocol {
		return nil, false
	}
	all, ok := e.g.Subscriptions()
	if !ok {
		return nil, false
	}
	topics := map[string]bool{}
	for _, b := range all {
		var m kmsg.ConsumerMemberMetadata
		if err := m.ReadFrom(b); err != nil {
			return nil, false
		}
		for _, t := range m.Topics {
			topics[t] = true
		}
	}
	return func(topic string) bool { return topics[topic] }, true
}

// expired tells whether a committed offset's time is over (Kafka's rules, KIP-211): it is counted from when the group became empty, and from the
// commit where others of its members do not read the topic, or it never had any. In an empty consumer group Kafka counts from the commit, so that
// those of a group that had nothing to read for long are gone with its last member, if only to be started anew. t is nil for a topic that is
// gone, reads for a group of which it is not known what it reads.
func (e *groupEntry) expired(now time.Time, o *metadata.CommittedOffset, t *metadata.Topic, reads func(string) bool, retention time.Duration) bool {
	since := o.Committed.Time()
	unread := reads != nil && t != nil && !reads(t.Name)
	switch {
	case e.c != nil && !unread:
		return false
	case e.c != nil && e.c.Empty():
		if empty := e.c.Since(); empty.After(since) {
			since = empty
		}
	case e.c != nil, e.g.ProtocolType() == "": // a consumer group, or clients that only commit here
	case e.g.State() == group.Empty:
		since = e.g.Since()
	case e.g.State() == group.Stable && unread:
	default:
		return false
	}
	if o.Expires != 0 {
		return !now.Before(o.Expires.Time())
	}
	return now.Sub(since) >= retention
}
