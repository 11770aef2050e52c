// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
)

// holdWrites keeps the node's transactions for groups from being sent until the function that it returns is called.
func (n *node) holdWrites() (release func()) {
	check(n.t, n.server.groups.writes.Acquire(context.Background(), maxGroupWrites))
	return func() { n.server.groups.writes.Release(maxGroupWrites) }
}

// commitOf is a request to commit one offset of partition 0 of topic t.
func commitOf(id string, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = id
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

func commitCode(resp kmsg.Response) Code {
	return Code(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// fetchOf is a request for what commitOf commits.
func fetchOf(id string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = id
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	return req
}

func fetchedOffset(resp kmsg.Response) int64 {
	return resp.(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset
}

const (
	pipedCommit = 8
	pipedFetch  = 7
)

// waitingCommits counts the changes of offsets that the node's shards have and have not stored.
func (n *node) waitingCommits() (waiting int) {
	n.t.Helper()
	shards, err := n.server.groups.all()
	check(n.t, err)
	for _, sh := range shards {
		count, err := ask(context.Background(), sh, func(_ time.Time, reply func(int)) {
			n := sh.commits
			if sh.flying != nil {
				for i := range sh.flying.parts {
					n += len(sh.flying.parts[i].replies)
				}
			}
			reply(n)
		})
		check(n.t, err)
		waiting += count
	}
	return waiting
}

// twoShards are ids of groups of different shards.
func (n *node) twoShards() (a, b string) {
	shards := n.meta.Image().Shards()
	for i := 1; ; i++ {
		if b = fmt.Sprint("g", i); metadata.ShardOf("g", shards) != metadata.ShardOf(b, shards) {
			return "g", b
		}
	}
}

// TestPipelinedCommits: commits of a connection are under way together and answered in order; what comes between them sees those before it
// and none behind it.
func TestPipelinedCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		one, two := n.twoShards()
		c := n.dial()
		release := n.holdWrites()
		type sent struct {
			correlation int32
			req         kmsg.Request
		}
		var all []sent
		send := func(version int16, req kmsg.Request) {
			all = append(all, sent{c.send(version, req), req})
		}
		send(pipedCommit, commitOf(one, 1))
		send(pipedCommit, commitOf(one, 2))
		send(pipedCommit, commitOf(two, 7))
		send(pipedFetch, fetchOf(one))
		send(pipedCommit, commitOf(one, 3))
		send(pipedFetch, fetchOf(two))
		send(pipedFetch, fetchOf(one))
		synctest.Wait()
		if got := n.waitingCommits(); got != 3 {
			t.Errorf("%d commits are under way, want those before the first fetch", got)
		}
		release()
		var got []string
		for _, s := range all {
			switch resp := c.receive(s.correlation, s.req).(type) {
			case *kmsg.OffsetCommitResponse:
				got = append(got, fmt.Sprint("commit ", commitCode(resp)))
			case *kmsg.OffsetFetchResponse:
				got = append(got, fmt.Sprint("fetch ", fetchedOffset(resp)))
			}
		}
		if want := fmt.Sprint([]string{"commit 0", "commit 0", "commit 0", "fetch 2", "commit 0", "fetch 7", "fetch 3"}); fmt.Sprint(got) != want {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// TestCommitsBehindATurn: commits behind a request that is served in its turn are under way together as soon as it is answered, and so are
// those that come then. A client whose connection is never empty would send one at a time for ever after its first such request.
func TestCommitsBehindATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		one, two := n.twoShards()
		c := n.dial()
		check(t, n.server.groups.reads.Acquire(t.Context(), maxGroupReads))
		fetch := fetchOf(one)
		first := c.send(pipedFetch, fetch)
		commits := map[int32]*kmsg.OffsetCommitRequest{}
		commit := func(id string) {
			req := commitOf(id, 1)
			commits[c.send(pipedCommit, req)] = req
		}
		commit(one)
		commit(two)
		commit(one)
		synctest.Wait()
		if got := n.waitingCommits(); got != 0 {
			t.Errorf("%d commits are under way before what was sent first", got)
		}
		release := n.holdWrites()
		n.server.groups.reads.Release(maxGroupReads)
		synctest.Wait()
		if got := n.waitingCommits(); got != 3 {
			t.Errorf("%d commits are under way, want the three behind the fetch", got)
		}
		commit(two)
		synctest.Wait()
		if got := n.waitingCommits(); got != 4 {
			t.Errorf("%d commits are under way, want the one that came later, too", got)
		}
		release()
		if got := fetchedOffset(c.receive(first, fetch)); got != -1 {
			t.Errorf("offset %d", got)
		}
		for _, correlation := range slices.Sorted(maps.Keys(commits)) {
			if code := commitCode(c.receive(correlation, commits[correlation])); code != codeNone {
				t.Errorf("a commit: %d", code)
			}
		}
	})
}

// TestCommitBehindLeave: a commit does not overtake the request of its member to leave, which was sent before it.
func TestCommitBehindLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: impatient}).coordinating()
		n.topic("t", 1, nil)
		c := n.dial()
		m := c.member("g", time.Minute)
		commit := func(offset int64) *kmsg.OffsetCommitRequest {
			req := commitOf("g", offset)
			req.MemberID, req.Generation = m.id, int32(m.generation)
			return req
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = "g", m.id
		first, second := commit(1), commit(2)
		a, b, d := c.send(pipedCommit, first), c.send(1, leave), c.send(pipedCommit, second)
		if code := commitCode(c.receive(a, first)); code != codeNone {
			t.Errorf("the commit before: %d", code)
		}
		if code := c.receive(b, leave).(*kmsg.LeaveGroupResponse).ErrorCode; code != 0 {
			t.Errorf("leaving: %d", code)
		}
		if code := commitCode(c.receive(d, second)); code != codeUnknownMemberID {
			t.Errorf("the commit behind: %d", code)
		}
		if got := fetchedOffset(c.do(pipedFetch, fetchOf("g"))); got != 1 {
			t.Errorf("offset %d", got)
		}
	})
}

// jointCommit has a commit of two shards sent as one transaction, whose executions txn decides about.
func (n *node) jointCommit(txn func(execution int) memory.Outcome) (codes [2]Code) {
	n.t.Helper()
	one, two := n.twoShards()
	executions := 0
	n.kv.SetFaults(memory.Faults{Txn: func(t metadata.Txn) memory.Outcome {
		groups := map[string]bool{}
		for _, op := range t.Then {
			if _, rest, ok := strings.Cut(op.Key, "/goff/"); ok && op.Kind == metadata.OpPut {
				groups[strings.Split(rest, "/")[1]] = true
			}
		}
		if len(groups) < 2 {
			return memory.Outcome{}
		}
		executions++
		return txn(executions)
	}})
	release := n.holdWrites()
	var wg sync.WaitGroup
	for i, id := range []string{one, two} {
		req := commitOf(id, 5)
		c := n.dial()
		correlation := c.send(pipedCommit, req)
		wg.Go(func() { codes[i] = commitCode(c.receive(correlation, req)) })
	}
	synctest.Wait()
	release()
	wg.Wait()
	n.kv.SetFaults(memory.Faults{})
	if executions == 0 {
		n.t.Error("the commits did not share a transaction")
	}
	return codes
}

// loseShard gives the shard of a group to nobody: the next owner's term is another.
func (n *node) loseShard(id string) {
	key := fmt.Sprintf("/coord/%d", metadata.ShardOf(id, n.meta.Image().Shards()))
	all, err := n.kv.Range(context.Background(), metadata.RangeRequest{Key: "\x00", End: "\xff"})
	check(n.t, err)
	for _, kv := range all.KVs {
		if strings.HasSuffix(kv.Key, key) {
			_, err := n.kv.Txn(context.Background(), metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpDelete, Key: kv.Key}}})
			check(n.t, err)
		}
	}
}

// TestJointCommitFenced: a shard that this node has lost does not take the commits of another one with it.
func TestJointCommitFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		one, two := n.twoShards()
		codes := n.jointCommit(func(execution int) memory.Outcome {
			if execution == 1 {
				n.loseShard(one)
			}
			return memory.Outcome{}
		})
		if codes != [2]Code{codeNotCoordinator, codeNone} {
			t.Errorf("codes %v", codes)
		}
		for id, want := range map[string]int64{one: -1, two: 5} {
			var resp *kmsg.OffsetFetchResponse
			n.await("a coordinator", func() bool { // the shard has to be taken again
				resp = n.dial().do(pipedFetch, fetchOf(id)).(*kmsg.OffsetFetchResponse)
				return resp.ErrorCode == 0
			})
			if got := fetchedOffset(resp); got != want {
				t.Errorf("group %s has offset %d, want %d", id, got, want)
			}
		}
	})
}

// TestJointCommitUnknown: a transaction of several shards whose answer is lost happened once, or not at all and then again; each shard goes
// on from what it finds.
func TestJointCommitUnknown(t *testing.T) {
	for name, first := range map[string]memory.Outcome{
		"request lost": {LoseRequest: true}, "reply lost": {LoseReply: true}, "late": {Late: time.Second}, "refused": {Unavailable: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{}).coordinating()
				n.topic("t", 1, nil)
				codes := n.jointCommit(func(execution int) memory.Outcome {
					if execution == 1 {
						return first
					}
					return memory.Outcome{}
				})
				if codes != [2]Code{} {
					t.Errorf("codes %v", codes)
				}
				time.Sleep(2 * time.Second) // what is late has come
				one, two := n.twoShards()
				for _, id := range []string{one, two} {
					if got := fetchedOffset(n.dial().do(pipedFetch, fetchOf(id))); got != 5 {
						t.Errorf("group %s has offset %d", id, got)
					}
					if code := commitCode(n.dial().do(pipedCommit, commitOf(id, 6))); code != codeNone {
						t.Errorf("the next commit of %s: %d", id, code)
					}
				}
			})
		})
	}
}

// TestCommitPipelineBound: of a connection that sends commits without an end a bounded number is taken up; the rest waits in the network.
func TestCommitPipelineBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		const commits = 3 * maxPipelined
		c, release := n.dial(), n.holdWrites()
		var frames [][]byte
		var last int32
		for i := range int64(commits) {
			frame, correlation := c.frame(pipedCommit, commitOf("g", i))
			frames, last = append(frames, frame), correlation
		}
		go func() {
			for _, f := range frames {
				if _, err := c.nc.Write(f); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		if got := n.waitingCommits(); got < maxPipelined || got > maxPipelined+2 {
			t.Errorf("%d commits are under way, want about %d", got, maxPipelined)
		}
		release()
		for correlation := last - commits + 1; correlation <= last; correlation++ {
			if code := commitCode(c.receive(correlation, versioned(commitOf("g", 0)))); code != codeNone {
				t.Fatalf("code %d", code)
			}
		}
		if got := fetchedOffset(c.do(pipedFetch, fetchOf("g"))); got != commits-1 {
			t.Errorf("offset %d, want the last", got)
		}
	})
}

func versioned(req *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitRequest {
	req.Version = pipedCommit
	return req
}
