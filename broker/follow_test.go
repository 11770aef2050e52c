// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"testing/synctest"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TestForgottenAndNamed: a replica that begins anew within a session is forgotten and named in one request. Else the leader would not
// repeat the high watermark that it had told the earlier role.
func TestForgottenAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		f := newFetcher(n.broker, 2)
		w := &followed{p: p, role: &following{}, inFetch: true}
		f.parts[p.id] = w
		f.session.id, f.session.epoch = 1, 3
		f.leave(w)
		req := f.request(Replica{Node: testNode})
		if len(req.Topics) != 1 || len(req.ForgottenTopics) != 1 || record.TopicID(req.ForgottenTopics[0].TopicID) != p.id.Topic {
			t.Errorf("named %+v, forgotten %+v", req.Topics, req.ForgottenTopics)
		}
	})
}

// TestAcknowledgedBeforeAssigned: a follower may know of its assignment before its leader does, and of an idle partition it does not
// say the same twice.
func TestAcknowledgedBeforeAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.Acknowledge(&ReadRequest{Replica: &Replica{Node: 2, Incarnation: 9, Store: metadata.NewUUID()}, CurrentEpoch: 0, LastFetchedEpoch: record.NoEpoch})
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.lead.followers[2] == nil {
			t.Error("the leader forgot what a node that it does not know as a replica yet has")
		}
		if _, wanted := p.wantedISRLocked(p.mu.lead, n.meta.Image(), p.mu.lead.began); wanted {
			t.Error("a node that is not assigned would enter the in-sync set")
		}
	})
}
