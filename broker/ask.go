// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// peerPool keeps connections to other nodes for requests that are no replica's fetches.
type peerPool struct {
	mu     sync.Mutex
	idle   map[record.NodeID][]*idlePeer
	closed bool
}

// idlePeer is a connection to one run of a node that nobody uses at the moment.
type idlePeer struct {
	*peer
	incarnation metadata.Incarnation
	since       time.Time
}

// take gives an idle connection, nil when there is none. Those that are too old, or to an earlier run of the node, are closed.
func (p *peerPool) take(n *metadata.Broker) *idlePeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for list := p.idle[n.Node]; len(list) > 0; {
		last := list[len(list)-1]
		list = list[:len(list)-1]
		p.idle[n.Node] = list
		if last.incarnation == n.Incarnation && time.Since(last.since) < maxPeerIdle {
			return last
		}
		last.close()
	}
	return nil
}

// give takes a connection back.
func (p *peerPool) give(n *metadata.Broker, c *idlePeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle[n.Node]) >= maxIdlePeers {
		c.close()
		return
	}
	if p.idle == nil {
		p.idle = map[record.NodeID][]*idlePeer{}
	}
	c.since = time.Now()
	p.idle[n.Node] = append(p.idle[n.Node], c)
}

func (p *peerPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, list := range p.idle {
		for _, c := range list {
			c.close()
		}
	}
	p.idle = nil
}

// Ask sends a request to another node's inter-broker listener and waits for the answer, which is the caller's. The request's version, which
// must be a flexible one, is set. After an error it is not known whether the node has served it: what is asked this way can be asked again.
func (b *Broker) Ask(ctx context.Context, node record.NodeID, req kmsg.Request) (kmsg.Response, error) {
	n := b.meta.Image().Broker(node)
	if n == nil {
		return nil, fmt.Errorf("node %d is not registered: %w", node, ErrNotLeader)
	}
	c := b.peers.take(n)
	pooled := c != nil
	for {
		if c == nil {
			p, err := b.dialPeer(ctx, n)
			if err != nil {
				return nil, err
			}
			c = &idlePeer{peer: p, incarnation: n.Incarnation}
		}
		resp := req.ResponseKind()
		err := c.request(ctx, req, copied{resp}, peerAskTimeout, nil)
		if err == nil {
			c.in = nil // tags of the answer lie in it
			b.peers.give(n, c)
			return resp, nil
		}
		c.close()
		if !pooled || ctx.Err() != nil {
			return nil, fmt.Errorf("asking node %d: %w", node, err)
		}
		c, pooled = nil, false // the other side closes what is idle: once more on a new one
	}
}

// copied hides that an answer can be read without copying.
type copied struct{ kmsg.Response }
