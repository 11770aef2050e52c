// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"context"
	"errors"
)

// Errors that a Node returns to choose the status of the answer; any other is 500.
var (
	// ErrNotFound: there is no such topic, partition or job.
	ErrNotFound = errors.New("ops: not found")
	// ErrRefused: the request is understood and cannot be done in the present state.
	ErrRefused = errors.New("ops: refused")
	// ErrUnavailable: try again later.
	ErrUnavailable = errors.New("ops: unavailable")
)

// Node is what the port shows and asks of the node it belongs to. Every method may be called concurrently.
type Node interface {
	// Ready returns why the node should not get traffic yet, nil when it should.
	Ready() error
	Cluster(ctx context.Context) (Cluster, error)
	Topic(ctx context.Context, name string) (Topic, error)
	// Segments returns manifest entries in offset order, the first being the one that holds or follows q.From.
	Segments(ctx context.Context, q SegmentQuery) (Segments, error)
	Config() []ConfigValue
	// Tick runs a background job once, now, and returns when it has.
	// Why answers for one partition, or for all of a topic when partition is -1.
	Why(ctx context.Context, topic string, partition int32) (Why, error)
	Tick(ctx context.Context, job string) error
	Nodes(ctx context.Context) (Nodes, error)
	// DrainNode marks a node as one that gives up what it leads and holds, or takes the mark away.
	DrainNode(ctx context.Context, node int32, on bool) (Nodes, error)
	UpgradeCluster(ctx context.Context, to int) (Cluster, error)
}

// Cluster is what a node knows of its cluster.
type Cluster struct {
	ClusterID string `json:"clusterId"`
	Name      string `json:"name"`
	// Version is the cluster version in force: it decides which formats are written.
	Version int `json:"version"`
	// Upgradable is the highest version that every registered node can run.
	Upgradable int           `json:"upgradableTo"`
	Node       int32         `json:"node"` // the one that answers
	Nodes      []ClusterNode `json:"nodes"`
	Controller *int32        `json:"controller"` // the node that holds the role, null when nobody is known to
	Topics     int           `json:"topics"`
	Partitions int           `json:"partitions"`
	Bucket     string        `json:"bucket,omitempty"` // without credentials
	Etcd       []string      `json:"etcd,omitempty"`   // the endpoints that this node uses
}

// ClusterNode is one registered broker.
type ClusterNode struct {
	ID         int32    `json:"id"`
	Listeners  []string `json:"listeners"`
	Rack       string   `json:"rack,omitempty"`
	MinVersion int      `json:"minVersion"`
	MaxVersion int      `json:"maxVersion"`
	Release    string   `json:"release,omitempty"`
}

// Topic is the answer of /v1/topics/{topic}.
type Topic struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
}

// Why is the answer of /v1/why/{topic}: in words, why partitions are as they are, as far as the node that answers knows.
type Why struct {
	Topic      string         `json:"topic"`
	Node       int32          `json:"node"` // the one that answers
	Partitions []WhyPartition `json:"partitions"`
}

// WhyPartition is one partition of it. The leader knows most; LeaderHTTP is where it says so.
type WhyPartition struct {
	Partition  int32    `json:"partition"`
	Leader     int32    `json:"leader"` // -1: nobody
	LeaderHTTP string   `json:"leaderHttp,omitempty"`
	Reasons    []string `json:"reasons"`
}

// SegmentQuery asks for one page of a partition's manifest.
type SegmentQuery struct {
	Topic     string
	Partition int32
	From      int64
	Limit     int
}

// Segments is one page of a partition's manifest.
type Segments struct {
	Topic       string    `json:"topic"`
	TopicID     string    `json:"topicId"`
	Partition   int32     `json:"partition"`
	LogStart    int64     `json:"logStartOffset"`
	TieredEnd   int64     `json:"tieredEndOffset"`
	TieredBytes int64     `json:"tieredBytes"`
	Pages       int       `json:"pages"` // manifest pages folded into the bucket
	Segments    []Segment `json:"segments"`
	// Next is where the following page starts, null behind the last one.
	Next *int64 `json:"next"`
}

// Segment is one manifest entry. End is the offset behind its last record.
type Segment struct {
	Base         int64  `json:"baseOffset"`
	End          int64  `json:"endOffset"`
	Records      int64  `json:"records"`
	Bytes        int64  `json:"bytes"`
	MinTimestamp int64  `json:"minTimestamp"`
	MaxTimestamp int64  `json:"maxTimestamp"`
	LeaderEpoch  int32  `json:"leaderEpoch"`
	HasAborted   bool   `json:"hasAborted,omitempty"`
	SealedAt     int64  `json:"sealedAt"` // ms since 1970
	Object       string `json:"object"`
	URL          string `json:"url,omitempty"` // of the object, for varve segment dump
	Position     int64  `json:"position"`
	Length       int64  `json:"length"`
	Attempt      string `json:"attempt"`
}

// ConfigValue is one entry of the effective config.
type ConfigValue struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}
