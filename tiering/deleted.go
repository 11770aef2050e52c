// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"fmt"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
)

// DeletionJob turns what deleted topics left behind into garbage records, and forgets the topics once nothing is left (protocols
// §7). It may run on every node: each step is a compare-and-swap. It asks the store only while an image shows such a topic.
func DeletionJob(meta *metadata.Store, pages PageSource, interval, grace time.Duration) Job {
	options := metadata.DrainOptions{
		Grace: grace,
		Segment: func(id record.PartitionID, base record.Offset, value []byte) (metadata.GCRecord, error) {
			e, err := manifest.DecodeEntry(value)
			if err != nil {
				return metadata.GCRecord{}, fmt.Errorf("entry of %s at %d: %w", id, base, err)
			}
			return entryGarbage(&e), nil
		},
		Page: func(ctx context.Context, id record.PartitionID, pointer []byte) ([]metadata.GCRecord, error) {
			page, err := manifest.DecodePage(pointer)
			if err != nil {
				return nil, fmt.Errorf("page pointer of %s: %w", id, err)
			}
			entries, err := pages.Page(ctx, page)
			if err != nil {
				return nil, fmt.Errorf("page %s of %s: %w", page.Object, id, err)
			}
			records := make([]metadata.GCRecord, 0, len(entries)+1)
			for i := range entries {
				records = append(records, entryGarbage(&entries[i]))
			}
			return append(records, metadata.GCRecord{Attempt: metadata.UUID(page.Attempt), Keys: []string{page.Object}, Reason: deletedReason}), nil
		},
	}
	return Job{Name: "deleted-topics", Interval: interval, Deadline: 10 * time.Minute, Run: func(ctx context.Context) error {
		if !anyDeleting(meta.Image()) {
			return nil
		}
		_, err := meta.DrainDeleting(ctx, options)
		return err
	}}
}

const deletedReason = "topic deleted"

func entryGarbage(e *manifest.Entry) metadata.GCRecord {
	return metadata.GCRecord{Attempt: metadata.UUID(e.Attempt), Keys: []string{e.Object}, Reason: deletedReason}
}

func anyDeleting(img *metadata.Image) bool {
	for t := range img.Topics() {
		if t.Deleting {
			return true
		}
	}
	return false
}
