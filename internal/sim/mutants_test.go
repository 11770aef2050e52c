// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// edit replaces the text old, which is there once, in a file.
type edit struct{ file, old, text string }

// mutant is a bug to plant in a copy of the tree. The simulation must find it within the first so many seeds, and by one of the
// statements that the bug breaks: a run that ends otherwise, or not at all, is not a find.
type mutant struct {
	name   string
	ids    string // of statements, separated by commas
	seeds  int
	edits  []edit
	set    string // the test whose seeds find it; "": TestSeeds
	shield string // not to be found alone, and why not
}

// test is the set of seeds that finds it.
func (m *mutant) test() string { return cmp.Or(m.set, "TestSeeds") }

// lost are the statements that a record breaks which was seen or acknowledged and is gone after a crash: it is missing, another one is at its
// offset, a consumer is told of lost data, or the high watermark goes back.
const lost = "S1,S2,S5,S6,S7"

var mutants = []mutant{
	// Acknowledgement and durability (faults A2, A13, B1, B3, I6).
	{name: "acknowledge before the sync", ids: lost, seeds: 60, edits: []edit{{"broker/hotlog/commit.go", "\t\tif err := d.sync(c); err != nil {\n\t\t\td.fail(err)",
		"\t\td.durable(c)\n\t\tif err := d.sync(c); err != nil {\n\t\t\td.fail(err)"}}},
	{name: "high watermark ahead of the disk", ids: lost, seeds: 100, edits: []edit{{"broker/partition.go", "lead.isr.OwnDurable(end)", "lead.isr.OwnDurable(p.mu.end)"}}},
	{name: "duplicate answered before it is durable", ids: lost, seeds: 100, edits: []edit{{"broker/partition.go", "return p.queueLocked(lead, o, pend, v.duplicate.next()), nil", "return false, nil"}}},
	{name: "fetch gives what lies above the high watermark", ids: "S27", seeds: 40, edits: []edit{{"broker/read.go", "plan := readPlan{from: req.Offset, bound: p.mu.hw}", "plan := readPlan{from: req.Offset, bound: p.mu.end}"}}},
	// Producers.
	{name: "producer state not stored with the records", ids: "S2,S5", seeds: 60, edits: []edit{{"broker/partition.go", "p.log.Append(batch, key, state)", "p.log.Append(batch, key, state[:0])"}}},
	{name: "duplicate stored again", ids: "S2,S5", seeds: 30, edits: []edit{{"broker/producer.go", "known.firstSeq == first && known.lastSeq == last", "known.firstSeq == first && known.lastSeq == -last"}}},
	// Sealing, log start and retention (faults B12, C9, C12, C22, G1 to G4).
	{name: "trim above the tiered end", ids: "S1,S7,S21", seeds: 10, edits: []edit{{"broker/storage.go", "to = min(to, p.mu.hw, max(p.mu.head.TieredEnd, p.mu.logStart))\n", "to = p.mu.hw\n"}}},
	{name: "log start not persisted before DeleteRecords answers", ids: "S6,S19", seeds: 40, edits: []edit{{"broker/records.go", "v, err := archive.AdvanceLogStart(ctx, to)\n",
		"p.mu.Lock()\n\tp.mu.logStart = to\n\tp.mu.Unlock()\n\treturn to, nil\n\tv, err := archive.AdvanceLogStart(ctx, to)\n"}}},
	{name: "log start after a restart is the local one", ids: "S6,S19,S20", seeds: 20, edits: []edit{{"broker/roles.go", "logStart := l.Head.LogStart", "logStart := p.log.Start()"}}},
	{name: "object of a commit with unknown outcome deleted", ids: "S21,S22", seeds: 40, edits: []edit{
		{"metadata/change.go", "\t\t\tunknown = true\n", "\t\t\treturn 0, err\n"},
		{"tiering/seal.go", "h.a.metrics.seals.WithLabelValues(\"lost\").Inc()", "_ = h.a.store.Delete(ctx, []string{e.Object})\n\t\th.a.metrics.seals.WithLabelValues(\"lost\").Inc()"}}},
	{name: "retention takes one segment too many", ids: "S20", seeds: 20, edits: []edit{{"tiering/retain.go", "if expired {\n\t\t\ttarget, left = e.End, left-e.DataBytes\n\t\t}\n\t\treturn expired",
		"target, left = e.End, left-e.DataBytes\n\t\treturn expired"}}},
	{name: "the segment that the log start cuts is dropped", ids: "S21,V2", seeds: 40, edits: []edit{{"tiering/retain.go", "if e.End > m.LogStart || len(drop) == dropBatch {", "if e.Base >= m.LogStart || len(drop) == dropBatch {"}}},
	// Reading (faults E5, E12, F1 to F4).
	{name: "time lookup ignores the log start", ids: "S13", seeds: 40, edits: []edit{{"tiering/lookup.go", "from = max(from, v.Manifest.LogStart)\n", "from = 0\n"},
		{"tiering/manifest/manifest.go", "from := max(q.Offset, m.LogStart)", "from := q.Offset"}}},
	{name: "time lookup passes over a segment whose largest timestamp is asked for", ids: "S13", seeds: 20, edits: []edit{{"tiering/manifest/manifest.go", "e.MaxTimestamp >= q.Time,", "e.MaxTimestamp > q.Time,"}}},
	{name: "hot time index forgets a batch's time", ids: "S13", seeds: 20, edits: []edit{{"broker/hotindex.go", "x.next = b.NextOffset()\n\tx.raise(ts)", "x.next = b.NextOffset()\n\t_ = ts"}}},
	// The segment's own check refuses both, so what was sealed cannot be read.
	{name: "largest timestamp of a chunk is its last batch's", ids: "V2", seeds: 20, edits: []edit{{"tiering/segment/build.go", "c.MaxTimestamp = max(c.MaxTimestamp, most)", "c.MaxTimestamp = most"}}},
	{name: "largest timestamp of a segment is its last batch's", ids: "V2", seeds: 20, edits: []edit{{"tiering/segment/build.go", "if most > i.MaxTimestamp {", "if most != i.MaxTimestamp {"}}},
	{name: "checksums of cold reads not checked", ids: "S2,S12,S26", seeds: 60, edits: []edit{{"tiering/segment/index.go", "if len(data) != int(c.Len) || crc32.Checksum(data, castagnoli) != c.CRC {",
		"if true {\n\t\treturn nil\n\t}\n\tif len(data) != int(c.Len) || crc32.Checksum(data, castagnoli) != c.CRC {"}}},
	{name: "first batch above the size asked for not given", ids: "V2", seeds: 30, edits: []edit{{"broker/read.go", "FirstWhole: req.FirstWhole, Buf: req.Buf}", "FirstWhole: false, Buf: req.Buf}"}}},
}

// TestMutants keeps the list true, and with VARVE_SIM_MUTANTS=1 plants each bug (or those whose name has VARVE_SIM_MUTANT in it) and runs
// the seeds against it. It is slow, since each mutant is a build of its own: after VARVE_SIM_MUTANT_SECONDS it begins no other, and it
// begins with the one after the first VARVE_SIM_MUTANT_SKIP, so that short boxes need not always try the same.
func TestMutants(t *testing.T) {
	const root = "../.."
	mutants := slices.Concat(mutants, clusterMutants(), groupMutants)
	run, box := os.Getenv("VARVE_SIM_MUTANTS") != "", time.Duration(number(t, "VARVE_SIM_MUTANT_SECONDS", 1<<32))*time.Second
	skip, began := int(number(t, "VARVE_SIM_MUTANT_SKIP", 0))%len(mutants), time.Now()
	for _, m := range append(append([]mutant(nil), mutants[skip:]...), mutants[:skip]...) {
		if !strings.Contains(m.name, os.Getenv("VARVE_SIM_MUTANT")) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			planted := map[string][]byte{}
			for _, e := range m.edits {
				source, err := planted[e.file], error(nil)
				if source == nil {
					source, err = os.ReadFile(filepath.Join(root, e.file))
				}
				if err != nil {
					t.Fatal(err)
				}
				if n := bytes.Count(source, []byte(e.old)); n != 1 {
					t.Fatalf("%s has %d places like %q", e.file, n, e.old)
				}
				planted[e.file] = bytes.Replace(source, []byte(e.old), []byte(e.text), 1)
			}
			switch {
			case !run:
			case m.shield != "":
				t.Skip("not to be found: " + m.shield)
			case time.Since(began) > box:
				t.Skipf("not tried: the box of %v is over", box)
			default:
				(&hunt{t: t, mutant: m}).run(root, planted)
			}
		})
	}
	if !run {
		t.Log("only the list was checked; VARVE_SIM_MUTANTS=1 plants the bugs")
	}
}
