// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/internal/golden"
	"github.com/varve/varve/record"
)

// TestStories runs testdata/stories.txt: commands, each followed by what came of it, indented.
//
//	story NAME
//	node ID [RACK]                 joins, or comes back
//	away ID | drain ID | undrain ID
//	topic LETTER REPLICAS… [auto] [min=N] [rate=KB/s,…]      one partition for each 1,2,3
//	reassign LETTER/N REPLICAS     as a user does
//	cancel LETTER/N
//	freeze | thaw                  new replicas come into sync, or not
//	rate LETTER/N KB/s
//	wait SECONDS
//	plan                           one plan
//	run                            plans by the second until nothing is left to do
//	show
func TestStories(t *testing.T) {
	const path = "testdata/stories.txt"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w := newWorld()
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&out, line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			if words[0] == "story" {
				w = newWorld()
				continue
			}
			for _, said := range tell(t, w, words) {
				fmt.Fprintln(&out, "  "+said)
			}
		}
	}
	golden.Check(t, path, out.String())
}

func tell(t *testing.T, w *world, words []string) (said []string) {
	t.Helper()
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return n
	}
	list := func(text string) (out []record.NodeID) {
		for _, part := range strings.Split(text, ",") {
			out = append(out, record.NodeID(number(part)))
		}
		return out
	}
	partition := func() *Partition {
		letter, index, _ := strings.Cut(words[1], "/")
		for _, p := range w.partitions {
			if p.ID.Topic[0] == letter[0] && p.ID.Index == int32(number(index)) {
				return p
			}
		}
		t.Fatalf("no partition %s", words[1])
		return nil
	}
	plan := func() (busy bool) {
		before := map[string]Partition{}
		for _, p := range w.partitions {
			before[name(p.ID)] = *p
		}
		steps, err := w.plan()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			p := before[name(s.ID)]
			said = append(said, describe(&p, &s))
		}
		return len(steps) > 0
	}
	switch words[0] {
	case "node":
		id := record.NodeID(number(words[1]))
		if w.nodes[id] == nil {
			w.nodes[id] = &worldNode{}
		}
		w.nodes[id].live = true
		if len(words) > 2 {
			w.nodes[id].rack = words[2]
		}
	case "away":
		w.nodes[record.NodeID(number(words[1]))].live = false
	case "drain", "undrain":
		w.nodes[record.NodeID(number(words[1]))].draining = words[0] == "drain"
	case "topic":
		auto, minISR, rates := false, 1, []string(nil)
		var parts [][]record.NodeID
		for _, word := range words[2:] {
			if after, ok := strings.CutPrefix(word, "rate="); ok {
				rates = strings.Split(after, ",")
			} else if after, ok := strings.CutPrefix(word, "min="); ok {
				minISR = int(number(after))
			} else if word == "auto" {
				auto = true
			} else {
				parts = append(parts, list(word))
			}
		}
		for i, replicas := range parts {
			rate := int64(0)
			if i < len(rates) {
				rate = number(rates[i]) << 10
			}
			w.add(words[1][0], int32(i), replicas, auto, rate).MinISR = minISR
		}
	case "rate":
		partition().Rate = number(words[2]) << 10
	case "reassign":
		p := partition()
		p.Assignment = p.Reassign(list(words[2]))
	case "cancel":
		p := partition()
		p.Assignment = p.Cancel()
	case "freeze", "thaw":
		w.frozen = words[0] == "freeze"
	case "wait":
		w.now = w.now.Add(time.Duration(number(words[1])) * time.Second)
	case "plan":
		plan()
	case "run":
		for quiet := 0; quiet < 30; w.now = w.now.Add(time.Second) {
			if quiet++; plan() {
				quiet = 0
			}
		}
		if len(said) == 0 {
			said = append(said, "nothing")
		}
	case "show":
		return strings.Split(w.summary(), "\n")
	default:
		t.Fatalf("no command %q", words[0])
	}
	w.settle()
	return said
}
