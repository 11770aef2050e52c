// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/metadata"
)

func (n *node) stores() (all []metadata.StoreBoots) {
	for _, db := range n.logs {
		id := db.Identity()
		all = append(all, metadata.StoreBoots{StoreID: id.StoreID, Boots: id.Boots, Stamp: db.Stamp()})
	}
	return all
}

// stamp raises the stamps of the data directories, there first and then in etcd: copies from before are known as such from then on, also those that
// were taken while the node ran.
func (n *node) stamp(ctx context.Context) error {
	for _, db := range n.logs {
		if err := db.SetStamp(db.Stamp() + 1); err != nil {
			return err
		}
	}
	suspect, err := n.meta.RegisterNode(ctx, n.stores())
	if i := slices.Index(suspect, true); err == nil && i >= 0 {
		return fmt.Errorf("%w: --data %s: another copy of it was started and has raised its stamp further: see that only one of the two runs", errCopied, n.options.data[i])
	}
	return err
}

// errCopied: two processes run on copies of one data directory.
var errCopied = errors.New("a data directory is in use twice")

// keepStamping stamps again while something is appended. Where etcd does not answer the next time will do.
func (n *node) keepStamping(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for stamped := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := n.appendedBytes()
		if now == stamped {
			continue
		}
		one, cancel := context.WithTimeout(ctx, every)
		err := n.stamp(one)
		cancel()
		switch {
		case err == nil:
			stamped = now
		case ctx.Err() != nil:
		case errors.Is(err, errCopied):
			return err
		default:
			n.log.Warn("the metadata was not told of a new stamp of the data directories, by which older copies of them are known", "error", err)
		}
	}
}
