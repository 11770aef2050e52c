// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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
			for _, b := range sh.flying {
				for i := range b.parts {
					n += len(b.parts[i].replies)
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

// TestGroupsOfAShard: groups of a shard do not wait for each other, while each of them has one change on its way. A commit that waited for
// another group's would miss the transaction after that one too, and hold back the answers behind it.
func TestGroupsOfAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		ids := []string{"g"}
		for i := 0; len(ids) <= maxShardFlights; i++ {
			if id, shards := fmt.Sprint("g", i), n.meta.Image().Shards(); metadata.ShardOf(id, shards) == metadata.ShardOf("g", shards) {
				ids = append(ids, id)
			}
		}
		var puts []int
		n.kv.SetFaults(memory.Faults{Txn: func(t metadata.Txn) memory.Outcome {
			offsets := 0
			for _, op := range t.Then {
				if op.Kind == metadata.OpPut && strings.Contains(op.Key, "/goff/") {
					offsets++
				}
			}
			if offsets > 0 {
				puts = append(puts, offsets)
			}
			return memory.Outcome{}
		}})
		defer n.kv.SetFaults(memory.Faults{})
		release := n.holdWrites()
		c := n.dial()
		commits := map[int32]*kmsg.OffsetCommitRequest{}
		for _, id := range append(ids, "g") {
			req := commitOf(id, 1)
			commits[c.send(pipedCommit, req)] = req
			synctest.Wait()
		}
		release()
		for _, correlation := range slices.Sorted(maps.Keys(commits)) {
			if code := commitCode(c.receive(correlation, commits[correlation])); code != codeNone {
				t.Errorf("a commit: %d", code)
			}
		}
		if want := []int{maxShardFlights, 2}; !slices.Equal(puts, want) {
			t.Errorf("offsets in each transaction: %v, want %v", puts, want)
		}
	})
}

// TestAnswersNotHeldBack: an answer waits for the next one only when that is known. Who commits one group after the other would wait for ever
// for the answer to the first.
func TestAnswersNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		release := n.holdWrites()
		c := n.dial()
		bad, good := commitOf("g", 1), commitOf("g", 2)
		bad.Generation, bad.MemberID = 7, "nobody"
		first := c.send(pipedCommit, bad)
		second := c.send(pipedCommit, good)
		if code := commitCode(c.receive(first, bad)); code == codeNone {
			t.Error("the commit of nobody was taken")
		}
		release()
		if code := commitCode(c.receive(second, good)); code != codeNone {
			t.Errorf("the other commit: %d", code)
		}
	})
}

// TestManyAnswersHeldBack: answers of many commits, more bytes than are held back, come whole and in order.
func TestManyAnswersHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		c := n.dial()
		release := n.holdWrites()
		const commits = maxPipelined - 8
		topic := strings.Repeat("no-such-topic", 15) // each answer names it, twice
		for i := range commits {
			req := commitOf("g", int64(i))
			for range 2 {
				other := req.Topics[0]
				other.Topic = topic
				req.Topics = append(req.Topics, other)
			}
			c.send(pipedCommit, req)
		}
		synctest.Wait()
		release()
		size := 0
		for i := range commits {
			req := commitOf("g", 0)
			req.Version = pipedCommit
			resp := c.receive(int32(i+1), req)
			size += len(resp.AppendTo(nil))
			if code := commitCode(resp); code != codeNone || len(resp.(*kmsg.OffsetCommitResponse).Topics) != 3 {
				t.Fatalf("commit %d: code %d", i, code)
			}
		}
		if size < maxUnsent {
			t.Errorf("answers of %d bytes do not reach the limit", size)
		}
		if got := fetchedOffset(c.do(pipedFetch, fetchOf("g"))); got != commits-1 {
			t.Errorf("offset %d", got)
		}
	})
}

// TestEditsOfAKey: an edit gives what a map would, and leaves what was there as it is.
func TestEditsOfAKey(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := map[int32]metadata.CommittedOffset{}
		var old []metadata.CommittedOffset
		for p := range int32(6) {
			if random.IntN(2) == 0 {
				o := metadata.CommittedOffset{Partition: p, Offset: 1}
				old, want[p] = append(old, o), o
			}
		}
		before := slices.Clone(old)
		var edit chunkEdit
		for p := range int32(6) {
			switch random.IntN(3) {
			case 0:
				o := metadata.CommittedOffset{Partition: p, Offset: 2}
				edit.set = append(edit.set, o)
				want[p] = o
			case 1:
				if random.IntN(4) == 0 {
					edit.drop = append(edit.drop, p)
					delete(want, p)
				}
			}
		}
		if random.IntN(2) == 0 {
			random.Shuffle(len(edit.set), func(i, j int) { edit.set[i], edit.set[j] = edit.set[j], edit.set[i] })
		}
		got := edit.apply(old)
		list := slices.SortedFunc(maps.Values(want), func(a, b metadata.CommittedOffset) int { return int(a.Partition - b.Partition) })
		if !slices.Equal(got, list) || !slices.Equal(old, before) {
			t.Fatalf("%v edited by %v: %v, want %v", before, edit, got, list)
		}
	}
}

// TestRefusedBehindACommit: a commit that is refused while the group's first one is on its way leaves the group as it is.
func TestRefusedBehindACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		release := n.holdWrites()
		c := n.dial()
		good, bad, later := commitOf("g", 1), commitOf("g", 2), commitOf("g", 3)
		bad.Generation, bad.MemberID = 7, "nobody"
		first := c.send(pipedCommit, good)
		synctest.Wait()
		second := c.send(pipedCommit, bad)
		synctest.Wait()
		release()
		if code := commitCode(c.receive(first, good)); code != codeNone {
			t.Errorf("the first commit: %d", code)
		}
		if code := commitCode(c.receive(second, bad)); code == codeNone {
			t.Error("the commit of nobody was taken")
		}
		if code := commitCode(c.do(pipedCommit, later)); code != codeNone {
			t.Errorf("the commit after it: %d", code)
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
