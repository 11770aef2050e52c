// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestReassignOneNode: what there is to say on one node, through a real one.
func TestReassignOneNode(t *testing.T) {
	n := startDev(t)
	run := func(stdin string, args ...string) (int, string, string) {
		return runCLI(t, stdin, append(args, "--bootstrap", n.kafka)...)
	}
	if code, _, errs := run("", "topic", "create", "t", "--partitions", "2"); code != 0 {
		t.Fatal(errs)
	}
	if code, out, errs := run("", "elect"); code != 0 || !strings.Contains(out, "every partition") {
		t.Errorf("elect: %d %q %q", code, out, errs)
	}
	if code, out, errs := run("", "elect", "t", "t:1"); code != 0 || strings.Count(out, "leads already") != 2 {
		t.Errorf("elect t: %d %q %q", code, out, errs)
	}
	if code, _, errs := run("", "elect", "t:7"); code != exitFailed || !strings.Contains(errs, "t:7") {
		t.Errorf("elect of no partition: %d %q", code, errs)
	}
	if code, out, errs := run("", "reassign", "status"); code != 0 || !strings.Contains(out, "nothing moves") {
		t.Errorf("status: %d %q %q", code, out, errs)
	}
	if code, out, errs := run("", "reassign", "cancel", "--all"); code != 0 || !strings.Contains(out, "nothing moves") {
		t.Errorf("cancel: %d %q %q", code, out, errs)
	}
	code, out, errs := run("", "reassign", "plan", "t", "--nodes", "1", "-o", "json")
	var r reassignment
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Version != 1 || len(r.Partitions) != 0 {
		t.Errorf("plan: %d %q %q", code, out, errs)
	}
	for args, want := range map[string]string{"--replication-factor 2": "there are 1", "--nodes 7": "node 7"} {
		if code, _, errs := run("", append([]string{"reassign", "plan", "t"}, strings.Fields(args)...)...); code != exitFailed || !strings.Contains(errs, want) {
			t.Errorf("plan %s: %d %q", args, code, errs)
		}
	}
	apply := func(text string) (int, string, string) { return run(text, "reassign", "apply", "--file", "-") }
	if code, out, errs := apply(out); code != 0 || out != "nothing to move\n" {
		t.Errorf("apply of a plan without moves: %d %q %q", code, out, errs)
	}
	for _, text := range []string{`{"version":1}`, `{"version":2,"partitions":[]}`} {
		if code, _, errs := apply(text); code != exitUsage || !strings.Contains(errs, "version 1 with a list of partitions") {
			t.Errorf("apply of %s: %d %q", text, code, errs)
		}
	}
	if code, out, errs := apply(`{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1],"log_dirs":["any"]}]}`); code != 0 || !strings.Contains(out, "begun") {
		t.Errorf("apply: %d %q %q", code, out, errs)
	}
	if code, out, errs := apply(`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,9]}]}`); code != exitFailed || !strings.Contains(errs, "9") || !strings.Contains(out, "failed") {
		t.Errorf("apply to an unknown node: %d %q %q", code, out, errs)
	}
	if code, _, errs := apply(`{"version":1,"partitions":[{"topic":"t","partition":0}]}`); code != exitUsage || !strings.Contains(errs, "replicas") {
		t.Errorf("apply without replicas: %d %q", code, errs)
	}
	code, out, errs = runCLI(t, "", "node", "list", "--http", n.http, "-o", "json")
	if code != 0 || !strings.Contains(out, `"leaders": 2`) || !strings.Contains(out, `"replicas": 2`) {
		t.Errorf("nodes: %d %q %q", code, out, errs)
	}
}

// cluster is metadata of nodes 1 to n in racks of two, with one topic.
func clusterOf(n int32, partitions ...[]int32) kadm.Metadata {
	md := kadm.Metadata{Topics: kadm.TopicDetails{}}
	for id := int32(1); id <= n; id++ {
		rack := fmt.Sprint("r", id%2)
		md.Brokers = append(md.Brokers, kadm.BrokerDetail{NodeID: id, Rack: &rack})
	}
	d := kadm.TopicDetail{Topic: "t", Partitions: kadm.PartitionDetails{}}
	for i, replicas := range partitions {
		d.Partitions[int32(i)] = kadm.PartitionDetail{Topic: "t", Partition: int32(i), Replicas: replicas}
	}
	md.Topics["t"] = d
	return md
}

func TestPlanMoves(t *testing.T) {
	// One replica more: the two that there are stay, the new one goes to another rack than they share, to whoever has least.
	moves, err := planMoves(clusterOf(4, []int32{1, 3}, []int32{2, 4}, []int32{1, 2}), []string{"t"}, nil, 3)
	if err != nil || len(moves) != 3 {
		t.Fatalf("%+v, %v", moves, err)
	}
	for _, m := range moves {
		if !slices.Equal(m.Next[:2], m.Now) || len(m.Next) != 3 {
			t.Errorf("%+v: the replicas that there are should stay", m)
		}
	}
	if in := moves[0].Next[2]; in%2 != 0 {
		t.Errorf("%v: both others are in rack r1, and so is the third", moves[0].Next)
	}
	// One less: the last goes.
	moves, err = planMoves(clusterOf(4, []int32{1, 3}, []int32{2}), []string{"t"}, nil, 1)
	if err != nil || len(moves) != 1 || !slices.Equal(moves[0].Next, []int32{1}) {
		t.Errorf("%+v, %v", moves, err)
	}
	// Other nodes: everything is spread over them.
	moves, err = planMoves(clusterOf(4, []int32{1, 2}, []int32{1, 2}), []string{"t"}, []int32{3, 4}, 0)
	if err != nil || len(moves) != 2 || moves[0].Next[0] == moves[1].Next[0] {
		t.Errorf("%+v, %v", moves, err)
	}
	for _, m := range moves {
		if slices.Contains(m.Next, 1) || slices.Contains(m.Next, 2) || len(m.Next) != 2 {
			t.Errorf("%+v", m)
		}
	}
	if _, err := planMoves(clusterOf(2), []string{"none"}, nil, 1); err == nil {
		t.Error("a topic that there is not was planned")
	}
}
