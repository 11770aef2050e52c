// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve/varve/ops"
)

// fixedNodes answers every question about nodes with the same.
type fixedNodes struct {
	manifestNode
	nodes ops.Nodes
}

func (n *fixedNodes) Nodes(context.Context) (ops.Nodes, error)                  { return n.nodes, nil }
func (n *fixedNodes) DrainNode(context.Context, int32, bool) (ops.Nodes, error) { return n.nodes, nil }

// TestDrainSaysWhatStays: on one line behind the table, with what to do; it is no failure.
func TestDrainSaysWhatStays(t *testing.T) {
	up, draining := ops.NodeState{Registered: true, Leaders: 3, Replicas: 9}, ops.NodeState{Registered: true, Draining: true, Replicas: 4}
	of := func(s ops.NodeState, id int32, staying int, in ...string) ops.NodeState {
		s.ID, s.Staying, s.StayingIn = id, staying, in
		return s
	}
	const elsewhere = "start another one, or lower the factor: `varve reassign plan "
	for name, row := range map[string]struct {
		nodes []ops.NodeState // the one that drains is node 2
		takes []int32
		want  []string // nil: nothing is said
	}{
		"all moves":     {[]ops.NodeState{of(up, 1, 0), of(draining, 2, 0)}, []int32{1, 3}, nil},
		"empty":         {[]ops.NodeState{{ID: 2, Registered: true, Draining: true}}, []int32{}, nil},
		"an older node": {[]ops.NodeState{of(draining, 2, 0)}, nil, nil},
		"one topic": {[]ops.NodeState{of(draining, 2, 4, "logs")}, []int32{1, 3},
			[]string{"4 replicas stay on node 2 (topic logs): ", "no other node can take them; nothing has to be done if the node comes back", elsewhere + "logs --nodes 1,3 --replication-factor 2 -o json | varve reassign apply --file -`"}},
		"one replica": {[]ops.NodeState{of(draining, 2, 1, "logs")}, []int32{1, 3}, []string{"1 replica stays on node 2", "take it;"}},
		"several":     {[]ops.NodeState{of(draining, 2, 4, "a", "b", "c")}, []int32{1, 3, 4}, []string{"(topics a, b, c)", "plan TOPIC --nodes 1,3,4 --replication-factor 3 "}},
		"many":        {[]ops.NodeState{of(draining, 2, 4, "a", "b", "c", "d", "e")}, []int32{1, 3}, []string{"(topics a, b, c, …)"}},
		"one node is left, and one replica is not proposed": {[]ops.NodeState{of(draining, 2, 4, "a")}, []int32{1}, []string{"else start another one, or end the drain of one\n"}},
		"none is left": {[]ops.NodeState{of(draining, 1, 3, "a"), of(draining, 2, 4, "a"), {ID: 3, Draining: true}}, []int32{},
			[]string{"node 2 keeps what it leads (0) and holds (4): no node is left that takes replicas or leaders (draining: 1,2); ", "`varve node undrain NODE`"}},
	} {
		at, tokenFile := startOps(t, &fixedNodes{nodes: ops.Nodes{Nodes: row.nodes, Takers: row.takes}}, "x")
		code, out, errs := runCLI(t, "", "node", "drain", "2", "--http", at, "--http-token-file", tokenFile)
		if code != exitDone || !strings.Contains(out, "draining") || strings.Count(errs, "\n") != min(1, len(row.want)) {
			t.Errorf("%s: %d %q %q", name, code, out, errs)
		}
		for _, want := range row.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: %q does not say %q", name, errs, want)
			}
		}
	}
}

// TestDrainOfTheLastNode: what cannot go on is not said to go on by itself.
func TestDrainOfTheLastNode(t *testing.T) {
	node := &fixedNodes{nodes: ops.Nodes{Nodes: []ops.NodeState{{ID: 2, Registered: true, Draining: true, Leaders: 3, Replicas: 4}}, Takers: []int32{}}}
	at, tokenFile := startOps(t, node, "x")
	drain := func() string {
		code, _, errs := runCLI(t, "", "node", "drain", "2", "--http", at, "--http-token-file", tokenFile, "--wait", "1ms")
		if code != exitFailed || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "still leads 3 partitions") {
			t.Errorf("%d %q", code, errs)
		}
		return errs
	}
	if errs := drain(); strings.Contains(errs, "by itself") || !strings.Contains(errs, "no node is left that takes replicas or leaders (draining: 2)") {
		t.Errorf("with none left: %q", errs)
	}
	node.nodes.Takers = []int32{1}
	if errs := drain(); !strings.Contains(errs, "it goes on by itself") {
		t.Errorf("with one left: %q", errs)
	}
}

// TestDrainAwaitsMoves: a node is not drained while a move brings a replica to it, or while others count on one that a move took away.
func TestDrainAwaitsMoves(t *testing.T) {
	for want, s := range map[string]ops.NodeState{
		"has 0 replicas that are to leave, and gets 1, after": {Arriving: 1},
		"has 1 replicas that are to leave, and gets 0, after": {Leaving: 1},
	} {
		s.ID, s.Registered, s.Draining = 2, true, true
		at, tokenFile := startOps(t, &fixedNodes{nodes: ops.Nodes{Nodes: []ops.NodeState{s}, Takers: []int32{1}}}, "x")
		if code, _, errs := runCLI(t, "", "node", "drain", "2", "--http", at, "--http-token-file", tokenFile, "--wait", "1ms"); code != exitFailed || !strings.Contains(errs, want) {
			t.Errorf("%d %q does not say %q", code, errs, want)
		}
	}
}

// TestUndrainSaysWhatComesBack: and where the whole rule is told.
func TestUndrainSaysWhatComesBack(t *testing.T) {
	node := &fixedNodes{nodes: ops.Nodes{Nodes: []ops.NodeState{{ID: 2, Registered: true}}}}
	at, tokenFile := startOps(t, node, "x")
	for id, want := range map[string]string{"2": "it leads within seconds where", "7": "once it runs, it leads"} {
		code, _, errs := runCLI(t, "", "node", "undrain", id, "--http", at, "--http-token-file", tokenFile)
		if code != exitDone || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) || !strings.Contains(errs, "`varve node undrain --help`") {
			t.Errorf("node %s: %d %q", id, code, errs)
		}
	}
	if _, help, _ := runCLI(t, "", "node", "undrain", "--help"); !strings.Contains(help, "16 KiB/s") || !strings.Contains(help, "varve reassign plan") {
		t.Errorf("the rule is not told:\n%s", help)
	}
}

// TestNodeColumns: each column of the list is explained in its help.
func TestNodeColumns(t *testing.T) {
	_, help, _ := runCLI(t, "", "node", "list", "--help")
	for _, column := range nodeTable().header {
		if column = strings.ToUpper(column); column != "NODE" && column != "RACK" && !strings.Contains(help, column+" ") {
			t.Errorf("%s is not explained", column)
		}
	}
}

// TestToken: who has none, and who has a wrong one, is told apart in the words of the command line, and the token is taken from the
// environment as well.
func TestToken(t *testing.T) {
	node := &manifestNode{version: 1}
	at, right := startOps(t, node, "the secret")
	wrong, empty := filepath.Join(t.TempDir(), "wrong"), filepath.Join(t.TempDir(), "empty")
	for file, text := range map[string]string{wrong: "the secre", empty: "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		env, flag string
		code      int
		want      string
	}{
		{"", "", exitFailed, "this needs the token that the node was started with: --http-token-file FILE (env VARVE_HTTP_TOKEN_FILE)"},
		{"", wrong, exitFailed, "the token in " + wrong + " is wrong: --http-token-file"},
		{wrong, "", exitFailed, "the token in " + wrong + " is wrong: --http-token-file"},
		{"", empty, exitUsage, "--http-token-file " + empty + " is empty"},
		{"", right, exitDone, ""},
		{right, "", exitDone, ""},
		{wrong, right, exitDone, ""},
	} {
		t.Setenv(envHTTPToken, row.env)
		for _, command := range []string{"node drain 3", "node undrain 3", "cluster upgrade"} {
			args := append(strings.Fields(command), "--http", at)
			if row.flag != "" {
				args = append(args, "--http-token-file", row.flag)
			}
			node.version = 1
			code, _, errs := runCLI(t, "", args...)
			if code != row.code || !strings.Contains(errs, row.want) || strings.Contains(errs, "Authorization") || strings.Contains(errs, "the secre") {
				t.Errorf("%s, %+v: %d %q", command, row, code, errs)
			}
		}
	}
}
