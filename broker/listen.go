// SPDX-License-Identifier: Apache-2.0

package broker

import "slices"

// Listener is told that something changed that a waiting fetch may care about: the high watermark or log start moved, the
// role or epoch changed, or the partition went away. It is called without locks and must not block.
type Listener interface{ PartitionChanged(p *Partition) }

type subscription struct {
	listener Listener
	replica  bool // of a follower: told of appends as well
}

// Subscribe calls l at every change until cancel; for a follower also at every append.
func (p *Partition) Subscribe(l Listener, replica bool) (cancel func()) {
	s := &subscription{listener: l, replica: replica}
	p.changeSubs(func(subs []*subscription) []*subscription { return append(slices.Clone(subs), s) })
	return func() {
		p.changeSubs(func(subs []*subscription) []*subscription {
			return slices.DeleteFunc(slices.Clone(subs), func(other *subscription) bool { return other == s })
		})
	}
}

func (p *Partition) changeSubs(change func([]*subscription) []*subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var old []*subscription
	if cur := p.subs.Load(); cur != nil {
		old = *cur
	}
	next := change(old)
	p.subs.Store(&next)
}

func (p *Partition) notify() {
	subs := p.subs.Load()
	if subs == nil {
		return
	}
	for _, s := range *subs {
		s.listener.PartitionChanged(p)
	}
}

// notifyReplicas tells the followers that something was appended.
func (p *Partition) notifyReplicas() {
	subs := p.subs.Load()
	if subs == nil {
		return
	}
	for _, s := range *subs {
		if s.replica {
			s.listener.PartitionChanged(p)
		}
	}
}
