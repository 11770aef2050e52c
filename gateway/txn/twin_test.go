// SPDX-License-Identifier: Apache-2.0

package txn

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// twin is the same thing written down naively: a list of producers, the last of which may act, and what became of each one's
// transaction.
type twin struct {
	line   []identity
	inside []string
	state  string // "idle", "open", "committing", "aborting"
	ended  string // how the last transaction ended: "", "commit", "abort"
	began  time.Time
}

// identity is one (id, epoch), with who may ask for it once more.
type identity struct {
	Producer
	from   Producer
	hidden bool // nobody is given it: it only fences
}

func (w *twin) last() *identity { return &w.line[len(w.line)-1] }

// follow makes the next identity.
func (w *twin) follow(from Producer, fresh int64, hidden bool) {
	next := Producer{ID: w.last().ID, Epoch: w.last().Epoch + 1}
	if w.last().Epoch >= lastEpoch && !hidden {
		next = Producer{ID: fresh}
	}
	w.line = append(w.line, identity{Producer: next, from: from, hidden: hidden})
}

func (w *twin) check(who Producer) error {
	if who.ID != w.last().ID {
		return ErrMapping
	}
	if who.Epoch != w.last().Epoch || who.Epoch > lastEpoch {
		return ErrFenced
	}
	return nil
}

func (w *twin) busy() bool { return w.state == "committing" || w.state == "aborting" }

func (w *twin) init(now time.Time, who Producer, fresh int64) (Producer, error) {
	again := who != Nobody && who == w.last().from
	if who.Epoch > lastEpoch || who != Nobody && who != w.last().Producer && (!again || w.state == "open") {
		return Nobody, ErrFenced
	}
	if w.busy() {
		return Nobody, ErrConcurrent
	}
	if w.state == "open" {
		w.state = "aborting"
		w.follow(who, 0, true)
		return Nobody, ErrConcurrent
	}
	if again && w.last().Epoch <= lastEpoch {
		return w.last().Producer, nil
	}
	w.follow(who, fresh, false)
	w.ended = ""
	return w.last().Producer, nil
}

func (w *twin) add(now time.Time, who Producer, thing string) error {
	if err := w.check(who); err != nil {
		return err
	}
	if w.busy() {
		return ErrConcurrent
	}
	if w.state == "idle" {
		w.state, w.began, w.inside, w.ended = "open", now, nil, ""
		w.last().from = Nobody
	}
	if !slices.Contains(w.inside, thing) {
		w.inside = append(w.inside, thing)
	}
	return nil
}

func (w *twin) end(who Producer, commit bool, version int8, fresh int64) (Producer, error) {
	way, doing := "abort", "aborting"
	if commit {
		way, doing = "commit", "committing"
	}
	if version == Bumping && who != Nobody && who == w.last().from && w.last().Epoch <= lastEpoch && (w.busy() || w.state == "idle" && w.ended != "") {
		if w.state != doing && w.ended != way {
			return Nobody, ErrInvalidState
		}
		return w.last().Producer, nil
	}
	if err := w.check(who); err != nil {
		return Nobody, err
	}
	switch {
	case w.state == "open":
		w.state = doing
		if version == Bumping {
			w.follow(who, fresh, false)
		}
		return w.last().Producer, nil
	case w.busy() && (version == Bumping || w.state == doing):
		return Nobody, ErrConcurrent
	case w.busy():
		return Nobody, ErrInvalidState
	case version == Bumping && !commit:
		w.follow(who, fresh, false)
		w.ended = "abort"
		return w.last().Producer, nil
	case version == Classic && w.ended == way:
		return w.last().Producer, nil
	}
	return Nobody, ErrInvalidState
}

func (w *twin) complete() {
	switch w.state {
	case "committing":
		w.state, w.ended, w.inside = "idle", "commit", nil
	case "aborting":
		w.state, w.ended, w.inside = "idle", "abort", nil
	}
}

// TestTwin compares both over random histories, close to the end of a producer id's epochs.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, ids := time.Unix(1000, 0), int64(1)
		x := New(now, ids, time.Minute)
		x.Epoch = rapid.Int16Range(lastEpoch-5, lastEpoch).Draw(t, "epoch")
		w := &twin{line: []identity{{Producer: x.Producer, from: Nobody}}, state: "idle"}
		given := map[Producer]bool{x.Producer: true}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Second)
			who := drawProducer(t, w)
			fresh := ids + 1
			var next *Txn
			var err, want error
			var answer Producer
			asked := true
			step := rapid.SampledFrom([]string{"init", "add", "add", "commit", "abort", "complete", "force"}).Draw(t, "step")
			version := rapid.SampledFrom([]int8{Classic, Bumping}).Draw(t, "version")
			switch step {
			case "init":
				next, err = x.Init(now, who, time.Minute, fresh)
				answer, want = w.init(now, who, fresh)
			case "add":
				n := rapid.IntRange(0, 2).Draw(t, "partition")
				next, err = x.Add(now, who, version, []record.PartitionID{{Index: int32(n)}})
				want, asked = w.add(now, who, fmt.Sprint(n)), false
			case "commit", "abort":
				next, err = x.End(now, who, step == "commit", version, fresh)
				answer, want = w.end(who, step == "commit", version, fresh)
			case "complete":
				next, asked = x.Complete(now), false
				w.complete()
			case "force":
				if next, asked = x.Abort(now), false; w.state == "open" {
					w.state = "aborting"
					w.follow(Nobody, 0, true)
				}
			}
			was := x.State
			if next != nil {
				x = next
				if x.ID == fresh || x.Next == fresh {
					ids++
				}
			}
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Fatalf("%s by %v: %v, want %v; it is %s", step, who, err, want, x.describe())
			}
			if asked && err == nil {
				if x.Answer() != answer || answer.Epoch > lastEpoch {
					t.Fatalf("%s by %v: answer %v, want %v", step, who, x.Answer(), answer)
				}
				given[answer] = true
			}
			compareTwin(t, x, w, was)
		}
	})
}

func drawProducer(t *rapid.T, w *twin) Producer {
	switch rapid.IntRange(0, 5).Draw(t, "who") {
	case 0:
		return Nobody
	case 1:
		return w.line[rapid.IntRange(max(0, len(w.line)-3), len(w.line)-1).Draw(t, "which")].Producer
	case 2:
		return w.last().from
	}
	return w.last().Producer
}

func compareTwin(t *rapid.T, x *Txn, w *twin, was State) {
	state := map[State]string{Empty: "idle", CompleteCommit: "idle", CompleteAbort: "idle", Ongoing: "open", PrepareCommit: "committing", PrepareAbort: "aborting"}[x.State]
	if state != w.state || x.State.Prepared() && was.Prepared() && was != x.State {
		t.Fatalf("%s after %s, want %s", x.describe(), was, w.state)
	}
	if x.State == Ongoing && len(x.Partitions) != len(w.inside) {
		t.Fatalf("%s, want %v", x.describe(), w.inside)
	}
	if x.State == Ongoing && !x.Deadline().Equal(w.began.Add(time.Minute)) {
		t.Fatalf("deadline %v, began %v", x.Deadline(), w.began)
	}
}
