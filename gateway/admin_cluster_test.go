// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataRequest(create, ops bool, names ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.AllowAutoTopicCreation = create
	r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = ops, ops
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		r.Topics = append(r.Topics, t)
	}
	return r
}

func metadataByID(ids ...[16]byte) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	for _, id := range ids {
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = id
		r.Topics = append(r.Topics, t)
	}
	return r
}

func TestMetadata(t *testing.T) {
	x := newAdminScript(t)
	id := x.makeTopic("t", 2)
	tt := x.topic("t")
	for v := int16(0); v <= 13; v++ {
		x.do("one topic", v, metadataRequest(false, true, tt))
		if v >= 4 { // older clients cannot say that they do not want it created
			x.do("unknown topic", v, metadataRequest(false, false, x.topic("no")))
		}
		all := metadataRequest(false, false)
		if v > 0 {
			all.Topics = nil
		}
		n, mine := 0, false
		if r, ok := x.quiet(v, all).(*kmsg.MetadataResponse); ok {
			n = len(r.Topics)
			for _, m := range r.Topics {
				mine = mine || (m.Topic != nil && *m.Topic == tt)
			}
		}
		x.note("v%d all topics: some %v, ours %v", v, n > 0, mine)
		if v > 0 {
			x.do("no topic", v, metadataRequest(false, false))
		}
	}
	x.do("by id", 12, metadataByID(id))
	x.do("by id", 13, metadataByID(id))
	x.do("unknown id", 12, metadataByID([16]byte{9}))
	x.do("two of one", 12, metadataByID(id, id))
	x.do("zero id", 12, metadataByID([16]byte{}))
	both := metadataByID(id)
	both.Topics[0].Topic = kmsg.StringPtr(tt)
	x.do("id and name", 12, both)
	both.Topics[0].Topic = kmsg.StringPtr(x.topic("no"))
	x.do("id and another name", 12, both)
	x.do("id in v10", 10, metadataByID(id))
	x.do("bad name", 9, metadataRequest(false, false, "a b"))
	x.do("bad name to create", 9, metadataRequest(true, false, "a b"))
	x.do("empty name", 9, metadataRequest(false, false, ""))
	x.do("named twice", 9, metadataRequest(false, false, tt, tt))
	x.do("create", 9, metadataRequest(true, false, x.topic("auto")))
	x.waitFor(x.topic("auto"))
	x.do("created", 9, metadataRequest(false, false, x.topic("auto")))
	x.do("create in v1", 1, metadataRequest(false, false, x.topic("auto1")))
	x.waitFor(x.topic("auto1"))
	x.do("create, collides", 9, metadataRequest(true, false, x.topic("a.b"), x.topic("a_b")))
	x.golden("03_metadata")
}

// waitFor asks until a topic that was created by asking is there.
func (x *adminScript) waitFor(topic string) {
	x.t.Helper()
	for range 1000 {
		r := x.quiet(9, metadataRequest(false, false, topic)).(*kmsg.MetadataResponse)
		if r.Topics[0].ErrorCode == 0 && r.Topics[0].Partitions[0].ErrorCode == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	x.t.Fatalf("%s was not created", topic)
}

func TestDescribeCluster(t *testing.T) {
	x := newAdminScript(t)
	for v := int16(0); v <= 2; v++ {
		r := kmsg.NewPtrDescribeClusterRequest()
		x.do("plain", v, r)
		r.IncludeClusterAuthorizedOperations = true
		x.do("with operations", v, r)
	}
	for _, e := range []int8{0, 2, 3} {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.EndpointType = e
		x.do("endpoint type", 2, r)
	}
	r := kmsg.NewPtrDescribeClusterRequest()
	r.IncludeFencedBrokers = true
	x.do("fenced too", 2, r)
	x.golden("60_describe_cluster")
}

func TestDescribeTopicPartitions(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("a", 3)
	x.makeTopic("b", 2)
	x.makeTopic("c", 1)
	req := func(limit int32, cursor string, partition int32, names ...string) *kmsg.DescribeTopicPartitionsRequest {
		r := kmsg.NewPtrDescribeTopicPartitionsRequest()
		r.ResponsePartitionLimit = limit
		for _, n := range names {
			t := kmsg.NewDescribeTopicPartitionsRequestTopic()
			t.Topic = n
			r.Topics = append(r.Topics, t)
		}
		if cursor != "" {
			c := kmsg.NewDescribeTopicPartitionsRequestCursor()
			c.Topic, c.Partition = cursor, partition
			r.Cursor = &c
		}
		return r
	}
	a, b, c := x.topic("a"), x.topic("b"), x.topic("c")
	x.do("one", 0, req(2000, "", 0, a))
	x.do("in order of names", 0, req(2000, "", 0, c, a))
	x.do("named twice", 0, req(2000, "", 0, a, a))
	x.do("unknown", 0, req(2000, "", 0, x.topic("no"), a))
	x.do("bad name", 0, req(2000, "", 0, "a b"))
	x.do("limit", 0, req(2, "", 0, a, b, c))
	x.do("from the cursor", 0, req(2, a, 2, a, b, c))
	x.do("from the cursor again", 0, req(2, b, 1, a, b, c))
	x.do("limit at the end of a topic", 0, req(3, "", 0, a, b, c))
	x.do("cursor behind the last partition", 0, req(100, a, 7, a, b))
	x.do("cursor on a topic not asked for", 0, req(100, b, 0, a, c))
	x.do("cursor on an unknown topic", 0, req(100, x.topic("bb"), 0, c, x.topic("bb")))
	x.do("negative cursor", 0, req(100, a, -1, a))
	x.do("limit 0", 0, req(0, "", 0, a))
	x.do("limit -1", 0, req(-1, "", 0, a))
	x.golden("75_describe_topic_partitions")
}

func TestDescribeLogDirs(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("t", 2)
	x.produce("t", 1, 5)
	req := func(topic string, partitions ...int32) *kmsg.DescribeLogDirsRequest {
		r := kmsg.NewPtrDescribeLogDirsRequest()
		t := kmsg.NewDescribeLogDirsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		r.Topics = append(r.Topics, t)
		return r
	}
	for v := int16(1); v <= 5; v++ {
		x.do("one partition", v, req(x.topic("t"), 0))
		x.do("unknown topic", v, req(x.topic("no"), 0))
		x.do("unknown partition", v, req(x.topic("t"), 9))
		x.do("no topic", v, func() kmsg.Request {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.Topics = []kmsg.DescribeLogDirsRequestTopic{}
			return r
		}())
		all := kmsg.NewPtrDescribeLogDirsRequest()
		all.Topics = nil
		r := x.quiet(v, all).(*kmsg.DescribeLogDirsResponse)
		found, bytes := false, int64(0)
		for _, d := range r.Dirs {
			for _, topic := range d.Topics {
				for _, p := range topic.Partitions {
					if topic.Topic == x.topic("t") && p.Partition == 1 {
						found, bytes = true, bytes+p.Size
					}
				}
			}
		}
		x.note("v%d all: found %v, has bytes %v", v, found, bytes > 0)
	}
	x.golden("35_describe_log_dirs")
}
