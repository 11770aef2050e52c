// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"time"

	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// electUncleanly makes the first registered replica lead, once those in sync are known to be away.
func (c *cluster) electUncleanly(n record.NodeID, id record.PartitionID) {
	c.t.Helper()
	c.await("the unclean election", func() bool {
		leader, err := c.nodes[n].meta.ElectUnclean(c.t.Context(), id)
		return err == nil && leader.Node == n
	})
}

// leaveBehind stops node 1, which is not in sync any more after that, and gives the leader that is left.
func (c *cluster) leaveBehind(id record.PartitionID) record.NodeID {
	c.t.Helper()
	c.nodes[1].stop()
	c.awaitLeader(id, 2)
	c.awaitISR(2, id, 2, 3)
	return 2
}

// TestUncleanTruncates: those that were in sync before an unclean election come back with a higher high watermark than the new leader's
// log has; they give up what it lacks, also what was committed, and are in sync again, for good.
func TestUncleanTruncates(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "kept")
		c.awaitHeld(id, []string{"kept"}, 1, 2, 3)
		p := c.awaitLeader(id, c.leaveBehind(id))
		c.must(p, "lost1")
		c.must(p, "lost2")
		c.awaitHeld(id, []string{"kept", "lost1", "lost2"}, 2, 3)
		c.nodes[2].stop()
		c.nodes[3].stop()
		c.start(1)
		c.electUncleanly(1, id)
		p = c.awaitLeader(id, 1)
		// The mark outlives the leader: a later one, elected cleanly, carries it on for those that come back then.
		c.nodes[1].stop()
		c.start(1)
		p = c.awaitLeader(id, 1)
		c.start(2)
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		c.must(p, "new")
		c.awaitHeld(id, []string{"kept", "new"}, 1, 2, 3)
		for _, n := range []record.NodeID{2, 3} {
			if c.nodes[n].log.Count("replica truncated", "to=1") == 0 {
				t.Errorf("node %d never truncated below what it knew to be committed: the test tests nothing", n)
			}
			c.nodes[n].stop()
			c.start(n) // what it keeps on its disk is the new log
		}
		c.awaitISR(1, id, 1, 2, 3)
		c.awaitHeld(id, []string{"kept", "new"}, 1, 2, 3)
	})
}

// TestUncleanBelowTheTier: one elected uncleanly whose log ends below what is in the bucket begins where the bucket ends; of what was
// committed only what was not in the bucket yet is lost.
func TestUncleanBelowTheTier(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
		c.must(c.awaitLeader(id, 1), "a")
		p := c.awaitLeader(id, c.leaveBehind(id))
		c.must(p, "b")
		c.must(p, "c")
		c.await("all to be in the bucket", func() bool { return p.Marks().TieredEnd == 3 })
		c.must(p, "lost")
		c.nodes[3].stop()
		c.nodes[2].stop()
		c.start(1)
		c.electUncleanly(1, id)
		p = c.awaitLeader(id, 1)
		if c.nodes[1].log.Count("replica starts at the end of the bucket", "start=3") == 0 {
			t.Error("it did not start at the end of the bucket: the test tests nothing")
		}
		c.start(2)
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		c.must(p, "d")
		c.awaitHeld(id, []string{"a", "b", "c", "d"}, 1, 2, 3)
	})
}

// TestUncleanPartsFromTheTier: one elected uncleanly reaches beyond the bucket with records that were never committed: they replaced
// nothing there, and are not continued.
func TestUncleanPartsFromTheTier(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.isolate(1, true)
		for _, v := range []string{"x", "y", "z"} { // on node 1 alone
			if _, err := c.produce(p, 1, v); err != nil {
				t.Fatal(err)
			}
		}
		c.nodes[1].stop()
		c.isolate(1, false)
		p = c.awaitLeader(id, 2)
		c.awaitISR(2, id, 2, 3)
		c.must(p, "b")
		c.await("two records to be in the bucket", func() bool { return p.Marks().TieredEnd == 2 })
		c.nodes[3].stop()
		c.nodes[2].stop()
		c.start(1)
		time.Sleep(time.Second)
		c.electUncleanly(1, id)
		p = c.awaitLeader(id, 1)
		if c.nodes[1].log.Count("replica starts at the end of the bucket", "had=4", "start=2") == 0 {
			t.Error("it did not start at the end of the bucket: the test tests nothing")
		}
		c.start(2)
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		c.must(p, "c")
		c.awaitHeld(id, []string{"a", "b", "c"}, 1, 2, 3)
	})
}

// TestEpochWithoutRecord: a leader that wrote nothing follows one with records of an earlier epoch: what was never acknowledged by the
// others may still become part of the log.
func TestEpochWithoutRecord(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.nodes[3].stop()
		c.awaitISR(1, id, 1, 2)
		c.isolate(1, true)
		if _, err := c.produce(p, 1, "tail"); err != nil {
			t.Fatal(err)
		}
		c.nodes[1].kv.SetFaults(memory.Faults{Outage: true})
		c.awaitLeader(id, 2) // in an epoch of its own, in which it writes nothing
		c.nodes[2].stop()
		c.nodes[1].kv.SetFaults(memory.Faults{})
		c.isolate(1, false)
		c.await("node 1 to lead again, as the one that is eligible", func() bool {
			state, _ := c.nodes[1].meta.Image().Partition(id)
			return state.Leader.Node == 1 && state.Leader.Epoch == 2 && p.Marks().Leading
		})
		c.start(2)
		c.awaitISR(1, id, 1, 2)
		c.must(p, "b")
		c.awaitHeld(id, []string{"a", "tail", "b"}, 1, 2)
	})
}

// givenUp makes a partition of which "a", "b" and "c" are in the bucket, led by node 1, which was elected uncleanly. Node 2 comes back, apart from
// the others. What it has acknowledged above "a" was given up; its log is trimmed by what the bucket holds since before any leader tells it so.
func (c *cluster) givenUp() record.PartitionID {
	c.t.Helper()
	id := c.topic("t", map[string]string{"segment.ms": "20000", "local.retention.ms": "0", "min.insync.replicas": "1"})
	c.must(c.awaitLeader(id, 1), "a")
	p := c.awaitLeader(id, c.leaveBehind(id))
	for _, v := range []string{"w", "x", "y", "z"} {
		c.must(p, v)
		time.Sleep(2 * time.Second) // the high watermark is noted beside a batch, now and then
	}
	if m := p.Marks(); m.TieredEnd > 1 || m.HW != 5 {
		c.t.Fatalf("what is to be given up is in the bucket already: %+v", m)
	}
	c.nodes[3].stop()
	c.nodes[2].stop()
	c.start(1)
	c.electUncleanly(1, id)
	p = c.awaitLeader(id, 1)
	c.must(p, "b")
	c.must(p, "c")
	c.await("all to be in the bucket", func() bool { return p.Marks().TieredEnd == 3 })
	c.isolate(2, true)
	c.start(2)
	c.await("node 2 to trim", func() bool {
		p, err := c.nodes[2].broker.Partition(id)
		return err == nil && p.Marks().Local == 3
	})
	return id
}

// TestUncleanBelowTheTrim: one whose log was given up even below where it begins by now begins anew where the bucket ends, and is in sync
// again.
func TestUncleanBelowTheTrim(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.givenUp()
		c.isolate(2, false)
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		c.must(c.awaitLeader(id, 1), "d")
		c.awaitHeld(id, []string{"a", "b", "c", "d"}, 1, 2, 3)
	})
}

// TestUncleanAboveTheTrim: elected uncleanly itself, it does not go on with what is left of that log either: it does not continue what is in
// the bucket, though nothing of it lies below.
func TestUncleanAboveTheTrim(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.givenUp()
		c.nodes[1].stop()
		c.isolate(2, false)
		c.electUncleanly(2, id)
		p := c.awaitLeader(id, 2)
		if at, err := c.produce(p, 1, "d"); at != 3 || err != nil {
			t.Errorf("the next record is at %d, want 3: %v", at, err)
		}
		c.start(1)
		c.start(3)
		c.awaitISR(2, id, 1, 2, 3)
		c.awaitHeld(id, []string{"a", "b", "c"}, 1, 2, 3)
	})
}
