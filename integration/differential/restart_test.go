// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/integration/harness"
)

const restarted = "restarted"

// beforeRestart fills a topic in the first leader epoch.
func beforeRestart(s *side) {
	s.create(restarted, 1)
	s.old = s.epoch(restarted)
	s.load(restarted, 0, at(-5000, -4000, -3000))
	s.load(restarted, 0, records(2).producer(77, 0, 0))
}

// afterRestart asks with the leader epoch of before, of now, and one of the future.
func afterRestart(s *side) {
	s.hangUp()
	s.awaitLeaders(restarted, 1)
	s.now = s.epoch(restarted) // how far the epoch went up is the broker's own affair
	if s.now <= s.old {
		s.t.Fatalf("%s: leader epoch %d after a restart, %d before", s.address, s.now, s.old)
	}
	s.load(restarted, 0, at(-2000, -1000))
	const lots = 1 << 20
	for _, epoch := range []struct {
		name  string
		value int32
	}{{"old", s.old}, {"present", s.now}, {"future", s.now + 1}} {
		e := epoch.value
		for _, v := range []int16{9, 11, 12, 13, 16, 18} {
			s.ask(fmt.Sprintf("restart/fetch with current epoch %s", epoch.name), v, s.fetchRequest(lots, want{topic: restarted, max: lots, current: &e}))
		}
		for _, v := range []int16{12, 13, 18} {
			for from := range int64(8) {
				w := want{topic: restarted, from: from, max: lots, last: &e}
				s.ask(fmt.Sprintf("restart/fetch from %d with last fetched epoch %s", from, epoch.name), v, s.fetchRequest(lots, w))
			}
		}
		for _, v := range []int16{4, 7, 11} {
			for _, ts := range []int64{-1, -2, -3, startOfRun - 3500, startOfRun - 1500} {
				s.listOffsets(fmt.Sprintf("restart/list offsets %d with current epoch %s", ts, epoch.name), v, restarted, 0, 0, e, ts)
			}
		}
		for v := int16(2); v <= 4; v++ {
			s.epochEnd(fmt.Sprintf("restart/end of epoch %s", epoch.name), v, restarted, 0, -1, e)
			s.epochEnd(fmt.Sprintf("restart/end of the old epoch with current epoch %s", epoch.name), v, restarted, 0, e, s.old)
		}
	}
	s.produce("restart/duplicate of the last batch", 9, -1, restarted, 0, records(2).producer(77, 0, 0).build())
	s.produce("restart/next of the producer", 9, -1, restarted, 0, records(1).producer(77, 0, 2).build())
	s.deleteRecords("restart/delete records of the old epoch", 2, restarted, 0, 6)
	for v := int16(2); v <= 4; v++ {
		s.epochEnd("restart/end of an epoch that is gone", v, restarted, 0, -1, s.old)
		s.epochEnd("restart/end of what is left", v, restarted, 0, -1, s.now)
	}
}

// restart compares both after an orderly restart, which begins a new leader epoch.
func restart(t *testing.T, kafkaDir, kafka string, node *harness.Node) (theirs, ours *side) {
	theirs, ours = newSide(t, kafka), newSide(t, node.Bootstrap())
	beforeRestart(theirs)
	beforeRestart(ours)
	if text, err := exec.Command(harness.KafkaScript(t), "restart", kafkaDir, "1").CombinedOutput(); err != nil {
		t.Fatalf("restart Kafka: %v: %s", err, text)
	}
	node.Crash()
	afterRestart(theirs)
	afterRestart(ours)
	return theirs, ours
}

// TestSpecialsOfTheTier holds -4, -5 and -6 to their definition: Kafka without a tier has no answer to compare with.
func TestSpecialsOfTheTier(t *testing.T) {
	bucket := filepath.Join(harness.TempDir(t, "bucket"), "b")
	node := harness.StartNode(t, harness.NodeConfig{Etcd: harness.StartEtcd(t).URL(), Bucket: "file://" + bucket})
	s := newSide(t, node.Bootstrap())
	s.create("tiered", 1, "segment.bytes", "1048576", "local.retention.ms", "1000")
	for range 8 {
		s.load("tiered", 0, records(400).with(func(b *batch) { b.size = 1000 }))
	}
	var seen string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		segments, err := node.Segments("tiered", 0)
		if err != nil {
			t.Fatal(err)
		}
		local, tiered, pending := s.special("tiered", -4), s.special("tiered", -5), s.special("tiered", -6)
		again, err := node.Segments("tiered", 0)
		if err != nil {
			t.Fatal(err)
		}
		seen = fmt.Sprintf("tiered end %d; -4: %d, -5: %d, -6: %d", segments.TieredEnd, local, tiered, pending)
		if segments.TieredEnd != again.TieredEnd {
			continue // moved while we asked
		}
		if tiered != segments.TieredEnd-1 || pending != segments.TieredEnd || local > pending {
			t.Fatal(seen)
		}
		if segments.TieredEnd > 0 && local > 0 {
			break // some of the log is in the bucket only
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was tiered and evicted: %s", seen)
		}
	}
	t.Log(seen)
}

func (s *side) special(topic string, ts int64) int64 {
	s.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, 10000
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = ts
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	got := s.must(11, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		s.t.Fatalf("list offsets %d of %s: code %d", ts, topic, got.ErrorCode)
	}
	return got.Offset
}
