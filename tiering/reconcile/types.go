// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
)

// Input is all that a plan is made of.
type Input struct {
	State   *metadata.Frozen
	Bucket  *Bucket
	Nodes   []Node
	Without []record.NodeID // nodes that are known and whose data directories are lost
}

// Node is what the data directories of a node hold.
type Node struct {
	ID       record.NodeID `json:"node"`
	Store    metadata.UUID `json:"store"`
	Cluster  string        `json:"clusterId"`
	Revision int64         `json:"revision"`   // the newest of the metadata store that it has seen
	Gen      int64         `json:"generation"` // and under which generation of the cluster
	MaxPID   int64         `json:"maxProducerId"`
	Logs     []Log         `json:"logs"`
}

// Log is one hot log.
type Log struct {
	ID            record.PartitionID  `json:"partition"`
	Start         record.Offset       `json:"start"`
	End           record.Offset       `json:"end"`
	HighWatermark record.Offset       `json:"highWatermark"` // a checkpoint at or below the true one
	CurrentEpoch  record.Epoch        `json:"currentEpoch"`
	Epochs        []record.EpochStart `json:"epochs"`
}

// Bucket is what the bucket holds.
type Bucket struct {
	Present map[string]bool                  // every object of a log
	Found   map[record.PartitionID][]Segment // segments that the metadata does not know of
	Pages   map[string][]manifest.Entry      // the pages that it knows of and that are there
	Broken  []string                         // what cannot be read, each with the reason
}

// Segment is one that the bucket holds and the metadata does not know of.
type Segment struct {
	Entry       manifest.Entry
	LeaderEpoch record.Epoch
	TopicName   string
	MaxPID      int64
}

// Change is one thing that the plan changes, and why.
type Change struct {
	What, Why string
}

// Result is the plan.
type Result struct {
	metadata.Reconciliation
	Changes  []Change
	Warnings []string // what is lost, or has to be looked at by somebody
}
