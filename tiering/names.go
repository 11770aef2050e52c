// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"fmt"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

// ObjectKey names the object of a segment: <clusterId>/log/<topicId>/<partition>/<base>-<attempt>.seg, below the prefix of the bucket URL. The
// attempt makes it unique for ever (C1); the rest is for people and for the sweep per partition.
func ObjectKey(i *segment.Info) string {
	return fmt.Sprintf("%s%020d-%s.seg", PartitionPrefix(i.ClusterID, record.PartitionID{Topic: i.Topic, Index: i.Partition}), i.Base, i.Attempt)
}

func pageKey(cluster string, id record.PartitionID, base record.Offset, a segment.Attempt) string {
	return fmt.Sprintf("%s%020d-%s.page", PartitionPrefix(cluster, id), base, a)
}

// PartitionPrefix is what the keys of all objects of a partition begin with.
func PartitionPrefix(cluster string, id record.PartitionID) string {
	return fmt.Sprintf("%s/log/%s/%d/", cluster, id.Topic.Hex(), id.Index)
}
