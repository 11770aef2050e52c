// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// gathering is what a group's members hold, seen from outside.
type gathering struct {
	partitions int
	changed    chan struct{}

	mu      sync.Mutex
	members map[*member]holding
}

// holding is what one member has: partitions, in this generation or epoch.
type holding struct {
	epoch int32
	owned []int32
}

func (g *gathering) expect(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[m] = holding{}
}

// hold says what a member has, if it still counts.
func (g *gathering) hold(m *member, h holding) {
	g.mu.Lock()
	if _, counts := g.members[m]; counts {
		g.members[m] = h
	}
	g.mu.Unlock()
	g.wake()
}

func (g *gathering) dismiss(m *member) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	g.wake()
}

func (g *gathering) wake() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// stable tells whether all members are in one epoch, hold equal shares, and every partition has one owner.
func (g *gathering) stable() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	least := g.partitions / len(g.members)
	owners := make([]bool, g.partitions)
	count, epoch := 0, int32(-1)
	for _, h := range g.members {
		if epoch < 0 {
			epoch = h.epoch
		}
		if h.epoch == 0 || h.epoch != epoch || len(h.owned) < least || len(h.owned) > least+1 {
			return false
		}
		for _, p := range h.owned {
			if owners[p] {
				return false
			}
			owners[p] = true
			count++
		}
	}
	return count == g.partitions
}

func (g *gathering) await(ctx context.Context, limit time.Duration, failed <-chan error) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	for !g.stable() {
		select {
		case <-g.changed:
		case err := <-failed:
			return err
		case <-t.C:
			return fmt.Errorf("not stable after %s", limit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
