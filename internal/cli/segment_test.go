// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// batches is a segment source in memory.
type batches []record.Batch

func (bs batches) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	for _, b := range bs {
		if b.BaseOffset() >= from && b.BaseOffset() < limit {
			if err := fn(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSegment builds a segment of ten batches with three records each and returns its file and info.
func writeSegment(t *testing.T) (string, segment.Info) {
	t.Helper()
	var src batches
	for i := range 10 {
		var b record.Builder
		for j := range 3 {
			b.Add(int64(1_700_000_000_000+i*100+j), fmt.Appendf(nil, "k%d", j), fmt.Appendf(nil, "value %d of batch %d", j, i))
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		batch.Stamp(record.Offset(100+3*i), 4)
		src = append(src, append(record.Batch(nil), batch...))
	}
	id := segment.Identity{ClusterID: "cluster-of-the-test-22", Gen: 1, TopicName: "logs", Partition: 2, LeaderEpoch: 4, Attempt: segment.Attempt{1, 2, 3}}
	extra := func(record.Offset) (segment.Extra, error) {
		return segment.Extra{Epochs: []record.EpochStart{{Epoch: 4, Start: 90}}, FirstUnstable: record.NoOffset, SealedAtMillis: 1_700_000_100_000}, nil
	}
	o, err := segment.Build(id, src, segment.Range{Base: 100, End: 130}, 0, extra)
	if err != nil {
		t.Fatal(err)
	}
	body, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, o.Info
}

// TestSegmentDumpMarkers: the end of a transaction is shown as what it is.
func TestSegmentDumpMarkers(t *testing.T) {
	for _, m := range []record.Marker{{Commit: true, CoordinatorEpoch: 7}, {CoordinatorEpoch: 8}} {
		b, err := m.Batch(record.Producer{ID: 5, Epoch: 1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "transactional,control,commit by coordinator epoch 7", false: "transactional,control,abort by coordinator epoch 8"}[m.Commit]
		if got := batchFlags(b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSegmentDump(t *testing.T) {
	path, info := writeSegment(t)
	for _, arg := range []string{path, "file://" + path} {
		code, out, errs := runCLI(t, "", "segment", "dump", arg, "--records", "-o", "json")
		var got dumped
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("%s: %d %v %s", arg, code, err, errs)
		}
		if got.Topic != "logs" || got.Base != 100 || got.End != 130 || got.Records != 30 || got.Bytes != info.Bytes || len(got.Faults) != 0 {
			t.Errorf("%s: %+v", arg, got)
		}
		if len(got.Batches) != 10 || len(got.Batches[9].Content) != 3 || *got.Batches[9].Content[2].Value != "value 2 of batch 9" || got.Batches[9].Content[2].Offset != 129 {
			t.Errorf("%s: the last batch is %+v", arg, got.Batches)
		}
	}
	code, out, _ := runCLI(t, "", "segment", "dump", path)
	if code != 0 || !strings.Contains(out, "segment of logs-2") || !strings.Contains(out, "10 batches: 0 faults") {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestSegmentDumpFromBucket: an object of a bucket in a directory is found by the bucket's URL and the key that segment list
// shows, and also by the file that it is kept in.
func TestSegmentDumpFromBucket(t *testing.T) {
	path, info := writeSegment(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.ToSlash(filepath.Join(t.TempDir(), "bucket"))
	at, err := objstore.ParseURL("file://" + root)
	if err != nil {
		t.Fatal(err)
	}
	store, err := openStore(t.Context(), at, "")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const key = "prefix/Cluster_ID/log/00000000000000000100-abc.seg"
	for _, k := range []string{"prefix/clusters/NAME", key} {
		if err := store.Create(t.Context(), k, objstore.Bytes(raw), objstore.PutOptions{Metadata: map[string]string{objstore.MetaAttempt: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	var file string
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "00000000000000000100") {
			file = path
		}
		return err
	})
	if err != nil || file == "" || file == filepath.Join(root, key) {
		t.Fatalf("the object's file is %q (%v); the test wants one that is not named like the key", file, err)
	}
	for _, arg := range []string{"file://" + root + "/" + key, file} {
		code, out, errs := runCLI(t, "", "segment", "dump", arg, "--summary", "-o", "json")
		var got dumped
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || got.Bytes != info.Bytes {
			t.Errorf("%s: %d %v %q", arg, code, err, errs)
		}
	}
	for _, arg := range []string{"file://" + root + "/prefix/Cluster_ID/log/none.seg", "file:///no/such/bucket/x"} {
		if code, out, errs := runCLI(t, "", "segment", "dump", arg); code != exitFailed || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d %q %q", arg, code, out, errs)
		}
	}
}

// TestSegmentDumpFindsEveryFlippedBit: each byte of a segment is covered by a check (segment W1), so that flipping any one bit
// makes dump fail.
func TestSegmentDumpFindsEveryFlippedBit(t *testing.T) {
	path, _ := writeSegment(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	for i := range raw {
		raw[i] ^= 1 << (i % 8)
		if err := os.WriteFile(damaged, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := runCLI(t, "", "segment", "dump", damaged); code != exitFailed || strings.Count(errs, "\n") != 1 {
			t.Errorf("bit %d of byte %d of %d flipped: code %d, %q", i%8, i, len(raw), code, errs)
		}
		raw[i] ^= 1 << (i % 8)
	}
}

func TestSegmentDumpOfSomethingElse(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "short": "x", "text": strings.Repeat("no segment\n", 1000)} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, errs := runCLI(t, "", "segment", "dump", path); code != exitFailed || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d %q %q", name, code, out, errs)
		}
	}
	if code, _, _ := runCLI(t, "", "segment", "dump", t.TempDir()); code != exitFailed {
		t.Errorf("a directory: %d", code)
	}
}
