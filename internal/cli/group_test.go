// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// devGroups consumes as a group, then looks at it, moves it and deletes it. The topic is its own.
func devGroups(t *testing.T) {
	must(t, "", "topic", "create", "grouped", "--partitions", "2")
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	must(t, lines.String(), "produce", "grouped")
	if got := strings.Count(must(t, "", "consume", "grouped", "--group", "g", "--from", "earliest"), "line "); got != 100 {
		t.Fatalf("the group read %d lines", got)
	}
	describe := func() describedGroup {
		t.Helper()
		var groups []describedGroup
		if err := json.Unmarshal([]byte(must(t, "", "group", "describe", "g", "-o", "json")), &groups); err != nil || len(groups) != 1 {
			t.Fatalf("%v: %+v", err, groups)
		}
		return groups[0]
	}
	var g describedGroup
	for deadline := time.Now().Add(time.Minute); g.State != "Empty"; time.Sleep(50 * time.Millisecond) {
		if g = describe(); time.Now().After(deadline) {
			t.Fatalf("the member is still there: %+v", g)
		}
	}
	if g.Lag != 0 || len(g.Partitions) != 2 || g.Partitions[0].Committed == nil || *g.Partitions[0].Committed != *g.Partitions[0].End {
		t.Errorf("after reading everything: %+v", g)
	}
	if out := must(t, "", "group", "list"); !strings.Contains(out, "g ") || !strings.Contains(out, "Empty") {
		t.Errorf("list: %s", out)
	}
	code, out, errs := runCLI(t, "", "group", "reset", "g", "--to", "earliest")
	if code != exitDone || !strings.Contains(errs, "--execute") || strings.Count(out, "grouped") != 2 || describe().Lag != 0 {
		t.Errorf("a dry run: %d %s%s", code, out, errs)
	}
	must(t, "", "group", "reset", "g", "--to", "earliest", "--execute")
	g = describe()
	if g.Lag != 100 {
		t.Errorf("back at the start: %+v", g)
	}
	second := min(3, *g.Partitions[1].End) // how the lines were spread is the producer's matter
	must(t, "", "group", "reset", "g", "--topic", "grouped", "--partition", "1", "--to", "shift:3", "--execute")
	if g := describe(); g.Lag != 100-second {
		t.Errorf("3 records on: %+v", g)
	}
	must(t, "", "group", "reset", "g", "--to", "-1h", "--execute")
	if g := describe(); g.Lag != 100 {
		t.Errorf("an hour back: %+v", g)
	}
	must(t, "", "group", "reset", "g", "--to", "999999", "--execute")
	if g := describe(); g.Lag != 0 {
		t.Errorf("beyond the end: %+v", g)
	}
	if out := must(t, "", "group", "describe", "g"); !strings.Contains(out, "group g  state Empty  type classic") || !strings.Contains(out, "COMMITTED") {
		t.Errorf("describe: %s", out)
	}
	devConsumerGroup(t)
	must(t, "", "group", "delete", "g")
	must(t, "", "topic", "delete", "grouped")
	if code, _, errs := runCLI(t, "", "group", "delete", "g"); code != exitFailed || !strings.Contains(errs, "group list") {
		t.Errorf("deleting what is gone: %d %s", code, errs)
	}
}

// devConsumerGroup: a group of the consumer protocol, as list and describe show it.
func devConsumerGroup(t *testing.T) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv(envBootstrap)), kgo.ConsumerGroup("modern"), kgo.ConsumeTopics("grouped"), kgo.ServerSideBalancer(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := 0; n < 100; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	var groups []describedGroup
	if err := json.Unmarshal([]byte(must(t, "", "group", "describe", "modern", "-o", "json")), &groups); err != nil || len(groups) != 1 {
		t.Fatalf("%v: %+v", err, groups)
	}
	g := groups[0]
	if g.Type != "consumer" || g.State != "Stable" || g.Protocol != "uniform" || g.Epoch == nil || *g.Epoch != 2 || len(g.Members) != 1 || g.Lag != 0 || len(g.Partitions) != 2 ||
		g.Partitions[1].Member != g.Members[0].Member || len(g.Members[0].Assigned["grouped"]) != 2 {
		t.Errorf("%+v", g)
	}
	if out := must(t, "", "group", "describe", "modern"); !strings.Contains(out, "group modern  state Stable  type consumer  protocol consumer/uniform  epoch 2") {
		t.Errorf("describe: %s", out)
	}
	if out := must(t, "", "group", "list", "--type", "consumer"); !strings.Contains(out, "modern") || strings.Contains(out, "classic") {
		t.Errorf("list --type consumer: %s", out)
	}
	if out := must(t, "", "group", "list", "--type", "classic"); strings.Contains(out, "modern") {
		t.Errorf("list --type classic: %s", out)
	}
	cl.LeaveGroup()
	must(t, "", "group", "delete", "modern")
}
