// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// DialFunc connects to another node's inter-broker listener.
type DialFunc func(ctx context.Context, address string) (net.Conn, error)

// UnableTag is the tagged field of a fetch's partition that says: this replica cannot append now, do not wait for it. It is empty.
const UnableTag = 10001

// AssignedTag is the tagged field of a fetch's partition in which a replica that is not in sync says by which revision (8 bytes) of the
// topic it is assigned.
const AssignedTag = 10002

// AssignsTag is the tagged field of a fetch's ReplicaState by which a follower tells that it sends AssignedTag where that counts. It is
// empty. One of a build that did not know the fields is believed without.
const AssignsTag = 10003

// LeavingTag is the tagged field of a fetch's ReplicaState by which a follower tells that its node is about to end. It is empty.
const LeavingTag = 10004

// StoreTag is the tagged field of a fetch's ReplicaState that carries the follower's store id (16 bytes). Kafka's own tags count up
// from 0.
const StoreTag = 10000

// peer is a connection to another node, for one request at a time. It is the client side of Kafka's framing and no more: the
// answers are those of nodes of this cluster.
type peer struct {
	conn        net.Conn
	correlation int32
	clientID    string
	out, in     []byte
	nudge       []byte // a whole request whose answer is not read
}

func (b *Broker) dialPeer(ctx context.Context, n *metadata.Broker) (*peer, error) {
	e, ok := n.Endpoint(b.cfg.InterBroker)
	if !ok {
		return nil, fmt.Errorf("node %d has no listener %s: give every node the same --inter-broker-listener-name", n.Node, b.cfg.InterBroker)
	}
	ctx, cancel := context.WithTimeout(ctx, peerDialTimeout)
	defer cancel()
	conn, err := b.cfg.Dial(ctx, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	if err != nil {
		return nil, fmt.Errorf("connecting to node %d: %w", n.Node, err)
	}
	return newPeer(conn, "varve-node-"+strconv.Itoa(int(b.cfg.Node.Node))), nil
}

func newPeer(conn net.Conn, clientID string) *peer {
	p := &peer{conn: conn, clientID: clientID}
	p.nudge = p.head(make([]byte, 4), kmsg.NewPtrApiVersionsRequest(), nudgeCorrelation) // of version 0, which has no tags and no body
	binary.BigEndian.PutUint32(p.nudge, uint32(len(p.nudge)-4))
	return p
}

// nudgeCorrelation is that of requests that are sent only so that something comes behind a fetch that waits: that ends the wait. The correlation
// ids of others count up from 1.
const nudgeCorrelation = -1

func (p *peer) head(b []byte, req kmsg.Request, correlation int32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = binary.BigEndian.AppendUint16(b, uint16(len(p.clientID)))
	return append(b, p.clientID...)
}

func (p *peer) close() { _ = p.conn.Close() } // nothing is lost with it

// errPeer: another node answered what this one cannot read.
var errPeer = errors.New("broker: another node's answer cannot be read")

// request sends one request and waits for its answer. The answer's records lie in the peer's buffer, which the next request reuses.
// An end of ctx ends it with the connection. Once hurry can be read from, the other side is asked not to let the request wait any more.
func (p *peer) request(ctx context.Context, req kmsg.Request, resp kmsg.Response, timeout time.Duration, hurry <-chan struct{}) error {
	if err := p.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.close)
	defer stop()
	p.correlation++
	b := p.head(append(p.out[:0], 0, 0, 0, 0), req, p.correlation)
	b = append(b, 0) // no tags
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	p.out = b
	if _, err := p.conn.Write(b); err != nil {
		return err
	}
	if hurry != nil {
		defer p.nudgeOn(hurry)()
	}
	in, err := p.answer()
	if err != nil {
		return err
	}
	if in[4] != 0 {
		return fmt.Errorf("%w: tags in the header", errPeer)
	}
	resp.SetVersion(req.GetVersion())
	unsafeResp, ok := resp.(interface{ UnsafeReadFrom([]byte) error })
	if !ok {
		return resp.ReadFrom(in[5:])
	}
	return unsafeResp.UnsafeReadFrom(in[5:])
}

// answer reads the frame with the answer to the last request, over those that nobody waits for.
func (p *peer) answer() ([]byte, error) {
	for {
		var head [4]byte
		if _, err := io.ReadFull(p.conn, head[:]); err != nil {
			return nil, err
		}
		size := int(binary.BigEndian.Uint32(head[:]))
		if size < 5 || size > maxPeerFrame {
			return nil, fmt.Errorf("%w: a frame of %d bytes", errPeer, size)
		}
		if cap(p.in) < size || cap(p.in) > maxPeerBuffer && size <= maxPeerBuffer {
			p.in = make([]byte, size+size/4)
		}
		in := p.in[:size]
		if _, err := io.ReadFull(p.conn, in); err != nil {
			return nil, err
		}
		switch got := int32(binary.BigEndian.Uint32(in)); got {
		case p.correlation:
			return in, nil
		case nudgeCorrelation:
		default:
			return nil, fmt.Errorf("%w: correlation id %d instead of %d", errPeer, got, p.correlation)
		}
	}
}

// nudgeOn sends a nudge once hurry can be read from, until end is called.
func (p *peer) nudgeOn(hurry <-chan struct{}) (end func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-hurry:
			_, _ = p.conn.Write(p.nudge) // the reader meets what is wrong with the connection
		case <-over:
		}
	}()
	return func() { close(over); <-gone }
}

// me is what this node says of itself in a fetch.
func (b *Broker) me(s *metadata.Session) Replica {
	return Replica{Node: b.cfg.Node.Node, Incarnation: s.Incarnation(), Store: b.cfg.Node.StoreID, Assigns: true, Leaving: b.leaving.Load()}
}

// ReplicaOf reads what a follower says of itself; ok is false for a consumer's fetch.
func ReplicaOf(req *kmsg.FetchRequest) (r Replica, ok bool) {
	r = Replica{Node: record.NodeID(req.ReplicaState.ID), Incarnation: metadata.Incarnation(req.ReplicaState.Epoch)}
	if req.Version < 15 {
		r.Node, r.Incarnation = record.NodeID(req.ReplicaID), -1
	}
	if r.Node < 0 {
		return r, false
	}
	req.ReplicaState.UnknownTags.Each(func(tag uint32, value []byte) {
		switch {
		case tag == StoreTag && len(value) == len(r.Store):
			copy(r.Store[:], value)
		case tag == AssignsTag:
			r.Assigns = true
		case tag == LeavingTag:
			r.Leaving = true
		}
	})
	return r, true
}
