// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Offset is a position in a partition's log. Control records take offsets too: there is one offset space.
type Offset int64

// NoOffset is Kafka's "no such offset".
const NoOffset Offset = -1

// Epoch is a leader epoch. It strictly increases with every change of a partition's leader.
type Epoch int32

// NoEpoch is Kafka's "no epoch known".
const NoEpoch Epoch = -1

// NodeID is Kafka's node.id.
type NodeID int32

// NoNode is Kafka's "no leader".
const NoNode NodeID = -1

// TopicID is a topic's UUID. It, never the name, identifies a topic in keys, caches and objects.
type TopicID [16]byte

// String is the 22-character form that Kafka's tools print: unpadded URL-safe base64.
func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// Hex is the 32-digit form used in etcd keys and object names.
func (t TopicID) Hex() string { return hex.EncodeToString(t[:]) }

// ParseTopicID reads the 22-character form.
func ParseTopicID(s string) (TopicID, error) {
	var t TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(t) {
		return t, fmt.Errorf("topic id %q is not 22 characters of URL-safe base64", s)
	}
	copy(t[:], b)
	return t, nil
}

// ParseTopicIDHex reads the 32-digit form.
func ParseTopicIDHex(s string) (TopicID, error) {
	var t TopicID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(t) {
		return t, fmt.Errorf("topic id %q is not 32 hexadecimal digits", s)
	}
	copy(t[:], b)
	return t, nil
}

// PartitionID names one partition for ever: a topic recreated under the same name has another id.
type PartitionID struct {
	Topic TopicID
	Index int32
}

func (p PartitionID) String() string { return p.Topic.String() + "-" + strconv.Itoa(int(p.Index)) }

// EpochStart is one entry of a leader-epoch table: the first offset that was, or would be, written in Epoch.
type EpochStart struct {
	Epoch Epoch
	Start Offset
}
