// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"github.com/varve/varve/metadata"
)

// electUnclean lets replicas lead that are not in sync, of topics that allow it (unclean.leader.election.enable), once nobody has led for
// a while: after a power failure those in sync may come back a little later.
func (c *Controller) electUnclean(ctx context.Context, now time.Time, img *metadata.Image) {
	offline := map[metadata.PartitionID]time.Time{}
	for t := range img.Topics() {
		if t.Deleting || t.Config == nil || !t.Config.UncleanLeaderElection {
			continue
		}
		for i := range t.Partitions {
			id := metadata.PartitionID{Topic: t.ID, Index: int32(i)}
			state, _ := img.Partition(id)
			b := img.Broker(state.Leader.Node)
			if state.Leader.Rev == 0 || b != nil && b.Incarnation == state.Leader.Incarnation {
				continue
			}
			since, known := c.offline[id]
			if !known {
				since = now
			}
			offline[id] = since
			if now.Sub(since) < uncleanAfter {
				continue
			}
			switch elected, err := c.meta.ElectUnclean(ctx, id); {
			case err == nil:
				c.unclean.Add(1)
				c.log.Warn("leader elected uncleanly: what it lacks is lost", "topic", t.Name, "partition", i, "leader", elected.Node, "epoch", elected.Epoch)
			case errors.Is(err, metadata.ErrNotEligible), errors.Is(err, metadata.ErrInSyncAlive), errors.Is(err, metadata.ErrLeaderAlive),
				errors.Is(err, metadata.ErrConflict), ctx.Err() != nil:
			default:
				c.log.Warn("no unclean election", "topic", t.Name, "partition", i, "error", err)
			}
		}
	}
	c.offline = offline
}
