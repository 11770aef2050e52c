// SPDX-License-Identifier: Apache-2.0

package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/tiering/objstore"
)

// largeSize is above the single-shot limit, and no multiple of a part.
const largeSize = objstore.MaxSingleShot + 6<<20 + 12345

type test struct {
	name string
	run  func(*testing.T, objstore.Store)
}

var small = []test{
	{"CreateIfAbsent", testCreateIfAbsent},
	{"Race", testRace},
	{"RaceResolved", testRaceResolved},
	{"Ranges", testRanges},
	{"Empty", testEmpty},
	{"ListPages", testListPages},
	{"ListKeys", testListKeys},
	{"ListStop", testListStop},
	{"Delete", testDelete},
	{"DeleteMany", testDeleteMany},
	{"Metadata", testMetadata},
	{"NotFound", testNotFound},
	{"WrongBody", func(t *testing.T, s objstore.Store) { testWrongBody(t, s, 1, 5000, 300_000) }},
	{"BadKeys", testBadKeys},
	{"ConcurrentReads", testConcurrentReads},
	{"Cancelled", testCancelled},
	{"LostReplies", testLostReplies},
	{"OtherAttempt", testOtherAttempt},
	{"Check", testCheck},
}

var large = []test{
	{"Large", testLarge},
	{"LargeRefused", testLargeRefused},
	{"SizesUpToLarge", testSizes},
	{"LargeWrongBody", func(t *testing.T, s objstore.Store) { testWrongBody(t, s, largeSize) }},
}

// Run runs the suite. open returns an empty store for one test, and has it closed when the test ends.
func Run(t *testing.T, open func(testing.TB) objstore.Store) {
	RunSmall(t, open)
	RunLarge(t, open)
}

// RunLarge runs the tests of how bodies of all sizes are sent.
func RunLarge(t *testing.T, open func(testing.TB) objstore.Store) {
	for _, test := range large {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// RunSmall leaves out the large objects: how they are sent is a driver's matter, so one stack of decorators is enough there.
func RunSmall(t *testing.T, open func(testing.TB) objstore.Store) {
	for _, test := range small {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// attempt returns options that name an attempt.
func attempt(name string) objstore.PutOptions {
	return objstore.PutOptions{Metadata: map[string]string{objstore.MetaAttempt: name}}
}

func create(t testing.TB, s objstore.Store, key string, body objstore.Body, o objstore.PutOptions) {
	t.Helper()
	if err := s.Create(t.Context(), key, body, o); err != nil {
		t.Fatalf("create %s: %v", key, err)
	}
}

// expect fails unless the object is exactly that.
func expect(t testing.TB, s objstore.Store, key string, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key, 0, int64(len(want)), nil)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("get %s: %d bytes with CRC %08x, want %d with %08x", key, len(got), objstore.CRC32C(got), len(want), objstore.CRC32C(want))
	}
	info, err := s.Stat(t.Context(), key)
	if err != nil || info.Size != int64(len(want)) {
		t.Fatalf("stat %s: size %d, %v; want %d", key, info.Size, err, len(want))
	}
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func testCreateIfAbsent(t *testing.T, s objstore.Store) {
	first := []byte("the first")
	create(t, s, "a/b/c", objstore.Bytes(first), attempt("one"))
	for range 3 {
		err := s.Create(t.Context(), "a/b/c", objstore.Bytes([]byte("another, longer")), attempt("two"))
		wantErr(t, "second create", err, objstore.ErrExists)
	}
	expect(t, s, "a/b/c", first)
	info, err := s.Stat(t.Context(), "a/b/c")
	if err != nil || info.Metadata[objstore.MetaAttempt] != "one" {
		t.Fatalf("stat: %+v, %v: want attempt one", info, err)
	}
}

const racers = 8

// testRace: the losers may see ErrExists, a conflict, or a connection that the store closed under their body.
func testRace(t *testing.T, s objstore.Store) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		bodies, errs := raceFor(t, key, s.Create)
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: %d and %d both created the object", round, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, objstore.ErrExists) && !errors.Is(err, objstore.ErrUnavailable) && !errors.Is(err, objstore.ErrUnknownOutcome):
				t.Fatalf("round %d: loser %d: %v", round, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody created the object: %v", round, errs)
		}
		expect(t, s, key, Content(bodies[winner]))
	}
}

// testRaceResolved: with rule 1 each knows the truth.
func testRaceResolved(t *testing.T, s objstore.Store) {
	for round := range 5 {
		key := fmt.Sprintf("resolved/%d", round)
		bodies, errs := raceFor(t, key, func(ctx context.Context, key string, b objstore.Body, o objstore.PutOptions) error {
			return objstore.CreateResolved(ctx, s, key, b, o)
		})
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: %d and %d both believe the object is theirs", round, winner, i)
			case err == nil:
				winner = i
			default:
				wantErr(t, "loser", err, objstore.ErrExists)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody believes the object is theirs", round)
		}
		expect(t, s, key, Content(bodies[winner]))
	}
}

func raceFor(t *testing.T, key string, create func(context.Context, string, objstore.Body, objstore.PutOptions) error) ([]objstore.Body, []error) {
	bodies, errs := make([]objstore.Body, racers), make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		bodies[i] = Random(uint64(i+1), 1<<20)
		wg.Go(func() {
			<-start
			errs[i] = create(t.Context(), key, bodies[i], attempt(fmt.Sprint("racer ", i)))
		})
	}
	close(start)
	wg.Wait()
	return bodies, errs
}

func testRanges(t *testing.T, s objstore.Store) {
	const size = 100_000
	body := Random(7, size)
	all := Content(body)
	create(t, s, "ranges", body, attempt("a"))
	prefix := []byte("kept")
	for _, r := range [][2]int64{{0, size}, {0, 1}, {0, 1000}, {1, 1}, {4095, 4098}, {50_000, 1234}, {size - 1, 1}, {size - 1000, 1000}, {0, 0}, {size, 0}, {10, 0}} {
		got, err := s.Get(t.Context(), "ranges", r[0], r[1], bytes.Clone(prefix))
		if err != nil || !bytes.Equal(got, append(bytes.Clone(prefix), all[r[0]:r[0]+r[1]]...)) {
			t.Fatalf("get [%d,+%d): %d bytes, %v", r[0], r[1], len(got), err)
		}
	}
	for _, r := range [][2]int64{{0, size + 1}, {1, size}, {size, 1}, {size - 1, 2}, {size + 1, 1}, {2 * size, size}, {size + 1, 0}, {-1, 1}, {0, -1}} {
		got, err := s.Get(t.Context(), "ranges", r[0], r[1], bytes.Clone(prefix))
		wantErr(t, fmt.Sprintf("get [%d,+%d)", r[0], r[1]), err, objstore.ErrRange)
		if !bytes.Equal(got, prefix) {
			t.Fatalf("get [%d,+%d): failed and left %q", r[0], r[1], got)
		}
	}
	// A destination with room is filled in place.
	buf := make([]byte, 0, 4096)
	got, err := s.Get(t.Context(), "ranges", 0, 4096, buf)
	if err != nil || &got[0] != &buf[:1][0] {
		t.Fatalf("get into a buffer with room: %v, or moved", err)
	}
}

func testEmpty(t *testing.T, s objstore.Store) {
	create(t, s, "empty", objstore.Bytes(nil), attempt("e"))
	expect(t, s, "empty", nil)
	_, err := s.Get(t.Context(), "empty", 0, 1, nil)
	wantErr(t, "get a byte of nothing", err, objstore.ErrRange)
	wantErr(t, "create again", s.Create(t.Context(), "empty", objstore.Bytes([]byte("x")), attempt("f")), objstore.ErrExists)
}

// testLarge: by multipart, where the driver has it: the id is told first, the completion is conditional, the content whole.
func testLarge(t *testing.T, s objstore.Store) {
	body := Random(11, largeSize)
	crc, err := objstore.BodyCRC32C(body)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	o := attempt("large")
	o.CRC32C = crc
	o.OnMultipart = func(id string) error {
		if _, err := s.Stat(context.Background(), "large/object"); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("the object is there when its upload is announced: %v", err)
		}
		ids = append(ids, id)
		return nil
	}
	create(t, s, "large/object", body, o)
	if len(ids) == 0 || ids[0] == "" {
		t.Fatalf("upload ids announced: %q", ids)
	}
	all := Content(body)
	expect(t, s, "large/object", all)
	got, err := s.Get(t.Context(), "large/object", 60<<20, largeSize-60<<20, nil)
	if err != nil || !bytes.Equal(got, all[60<<20:]) {
		t.Fatalf("get the end: %v", err)
	}
	info, err := s.Stat(t.Context(), "large/object")
	if err != nil || info.Metadata[objstore.MetaCRC32C] != objstore.FormatCRC(crc) || info.Metadata[objstore.MetaAttempt] != "large" {
		t.Fatalf("stat: %+v, %v", info, err)
	}
	o.OnMultipart = nil
	o.Metadata = attempt("other").Metadata
	wantErr(t, "create again", s.Create(t.Context(), "large/object", body, o), objstore.ErrExists)
	for _, id := range ids {
		if err := s.AbortUpload(t.Context(), "large/object", id); err != nil {
			t.Fatalf("abort of a completed upload: %v", err)
		}
	}
	expect(t, s, "large/object", all)
}

// testSizes: what is left of a part, and the limits between the ways of sending.
func testSizes(t *testing.T, s objstore.Store) {
	for _, size := range []int64{1, 1000, 1 << 20, objstore.MaxSingleShot, objstore.MaxSingleShot + 1} {
		key := fmt.Sprintf("sizes/%d", size)
		body := Random(uint64(size), size)
		create(t, s, key, body, attempt("s"))
		expect(t, s, key, Content(body))
	}
}

// testLargeRefused: an upload whose id could not be written down leaves nothing, and can be tried again.
func testLargeRefused(t *testing.T, s objstore.Store) {
	body := Random(13, largeSize)
	refused := errors.New("the intent could not be written")
	o := attempt("refused")
	var id string
	o.OnMultipart = func(upload string) error { id = upload; return refused }
	wantErr(t, "create", s.Create(t.Context(), "refused", body, o), refused)
	_, err := s.Stat(t.Context(), "refused")
	wantErr(t, "stat", err, objstore.ErrNotFound)
	for range 2 {
		if err := s.AbortUpload(t.Context(), "refused", id); err != nil {
			t.Fatalf("abort upload %s: %v", id, err)
		}
	}
	o.OnMultipart = func(string) error { return nil }
	create(t, s, "refused", body, o)
}

func testMetadata(t *testing.T, s objstore.Store) {
	body := []byte("with metadata")
	want := map[string]string{objstore.MetaAttempt: "0f9d", "topic-id": "x y=z/+%", "empty-not": "0", "n9": "~!#$&'()*,:;<>?@[]^_`{|}\"\\"}
	create(t, s, "meta", objstore.Bytes(body), objstore.PutOptions{Metadata: want})
	info, err := s.Stat(t.Context(), "meta")
	if err != nil {
		t.Fatal(err)
	}
	full := maps.Clone(want)
	full[objstore.MetaCRC32C] = objstore.FormatCRC(objstore.CRC32C(body))
	if !maps.Equal(info.Metadata, full) {
		t.Fatalf("metadata %q, want %q", info.Metadata, full)
	}
	if info.Key != "meta" {
		t.Fatalf("key %q", info.Key)
	}
	if age := time.Since(info.Modified); age < -time.Minute || age > 10*time.Minute {
		t.Fatalf("modified %v ago", age)
	}
	for _, bad := range []map[string]string{{"Upper": "x"}, {"": "x"}, {"a_b": "x"}, {"a": "ü"}, {"a": "line\nbreak"}, {"a": " x"}, {"a": string(make([]byte, 3000))}} {
		err := s.Create(t.Context(), "bad-meta", objstore.Bytes(body), objstore.PutOptions{Metadata: bad})
		wantErr(t, fmt.Sprintf("create with %.40q", bad), err, objstore.ErrRejected)
	}
}

func testNotFound(t *testing.T, s objstore.Store) {
	create(t, s, "there/below", objstore.Bytes([]byte("x")), attempt("a"))
	for _, key := range []string{"nothing", "there", "there/below2", "nothing/at/all"} {
		_, err := s.Get(t.Context(), key, 0, 1, nil)
		wantErr(t, "get "+key, err, objstore.ErrNotFound)
		_, err = s.Get(t.Context(), key, 0, 0, nil)
		wantErr(t, "get nothing of "+key, err, objstore.ErrNotFound)
		_, err = s.Stat(t.Context(), key)
		wantErr(t, "stat "+key, err, objstore.ErrNotFound)
	}
}

// testWrongBody: bytes that are not those promised are refused, whatever the way of upload, and never look like what was promised.
func testWrongBody(t *testing.T, s objstore.Store, sizes ...int64) {
	for _, size := range sizes {
		body := Random(uint64(size), size)
		crc, err := objstore.BodyCRC32C(body)
		if err != nil {
			t.Fatal(err)
		}
		for name, wrong := range map[string]struct {
			body objstore.Body
			crc  uint32
		}{
			"checksum": {body, crc ^ 1},
			"short":    {claim{body, size + 1}, crc},
			"long":     {claim{Random(uint64(size), size+1), size}, crc ^ 1},
		} {
			key := fmt.Sprintf("wrong/%s-%d", name, size)
			o := attempt("w")
			o.CRC32C = wrong.crc
			wantErr(t, "create "+key, s.Create(t.Context(), key, wrong.body, o), objstore.ErrCorrupt)
			info, err := s.Stat(t.Context(), key)
			if name == "short" && err == nil && info.Size < wrong.body.Size() {
				// A server (versitygw, without a signature of the body) kept the beginning of a body that was cut off. Nothing refers to it,
				// and CreateResolved tells it by its size.
				continue
			}
			wantErr(t, "stat "+key, err, objstore.ErrNotFound)
		}
	}
}

func testBadKeys(t *testing.T, s objstore.Store) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "a/../b", "./a", "a\x00b", "a\nb", "\xff", `a\b`, string(bytes.Repeat([]byte("k"), 1025))} {
		wantErr(t, "create", s.Create(t.Context(), key, objstore.Bytes([]byte("x")), attempt("a")), objstore.ErrRejected)
		_, err := s.Get(t.Context(), key, 0, 1, nil)
		wantErr(t, "get", err, objstore.ErrRejected)
		_, err = s.Stat(t.Context(), key)
		wantErr(t, "stat", err, objstore.ErrRejected)
		wantErr(t, "delete", s.Delete(t.Context(), []string{key})[0], objstore.ErrRejected)
	}
}

func testConcurrentReads(t *testing.T, s objstore.Store) {
	const size = 1 << 20
	body := Random(17, size)
	all := Content(body)
	create(t, s, "shared", body, attempt("a"))
	var wg sync.WaitGroup
	for i := range int64(16) {
		wg.Go(func() {
			buf := make([]byte, 0, 64<<10)
			for j := range int64(10) {
				off := (i*65_537 + j*10_007) % (size - 64<<10)
				got, err := s.Get(t.Context(), "shared", off, 64<<10, buf)
				if err != nil || !bytes.Equal(got, all[off:off+64<<10]) {
					t.Errorf("get at %d: %v, or wrong bytes", off, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// testCancelled: no call outlives its context, and a dead context is never an answer about the object (O2).
func testCancelled(t *testing.T, s objstore.Store) {
	create(t, s, "there", objstore.Bytes([]byte("x")), attempt("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, gerr := s.Get(ctx, "there", 0, 1, nil)
	_, serr := s.Stat(ctx, "absent")
	lerr := s.List(ctx, "", "", func(objstore.Info) error { return nil })
	for what, err := range map[string]error{"get": gerr, "stat": serr, "list": lerr} {
		if !errors.Is(err, objstore.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a dead context: %v", what, err)
		}
	}
	err := s.Create(ctx, "new", objstore.Bytes([]byte("x")), attempt("a"))
	if !errors.Is(err, context.Canceled) || (!errors.Is(err, objstore.ErrUnavailable) && !errors.Is(err, objstore.ErrUnknownOutcome)) {
		t.Errorf("create with a dead context: %v", err)
	}
	if err := s.Delete(ctx, []string{"there"})[0]; err == nil {
		t.Error("delete with a dead context: nil")
	}
	expect(t, s, "there", []byte("x"))
}

// testLostReplies: rule 1 under a network that loses requests and replies, at once or later.
func testLostReplies(t *testing.T, s objstore.Store) {
	f := objstore.Fault(keepOpen{s}, objstore.FaultOptions{Seed: 3, MaxDelay: 20 * time.Millisecond, Rates: []objstore.Rate{
		{Effect: objstore.LostReply, Probability: 0.15}, {Effect: objstore.LostRequest, Probability: 0.1}, {Effect: objstore.LateReply, Probability: 0.1},
		{Effect: objstore.Unavailable, Probability: 0.05}, {Effect: objstore.NotThere, Probability: 0.05},
	}})
	const objects = 30
	var wg sync.WaitGroup
	for i := range objects {
		wg.Go(func() {
			body := Random(uint64(100+i), int64(1000+i))
			if err := objstore.CreateResolved(t.Context(), f, fmt.Sprintf("lost/%02d", i), body, attempt(fmt.Sprint("lost ", i))); err != nil {
				t.Errorf("object %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := f.Count(objstore.OpStat); n == 0 {
		t.Fatal("no outcome was ever in doubt: the test shows nothing")
	}
	for i := range objects {
		expect(t, s, fmt.Sprintf("lost/%02d", i), Content(Random(uint64(100+i), int64(1000+i))))
	}
}

// keepOpen lets a decorator be closed without its store.
type keepOpen struct{ objstore.Store }

func (keepOpen) Close() error { return nil }

func testOtherAttempt(t *testing.T, s objstore.Store) {
	create(t, s, "taken", objstore.Bytes([]byte("theirs")), attempt("theirs"))
	wantErr(t, "create", objstore.CreateResolved(t.Context(), s, "taken", objstore.Bytes([]byte("theirs")), attempt("ours")), objstore.ErrExists)
	if err := objstore.CreateResolved(t.Context(), s, "taken", objstore.Bytes([]byte("theirs")), attempt("theirs")); err != nil {
		t.Fatalf("the same attempt again: %v", err)
	}
	wantErr(t, "same attempt, other bytes", objstore.CreateResolved(t.Context(), s, "taken", objstore.Bytes([]byte("forged")), attempt("theirs")), objstore.ErrCorrupt)
	wantErr(t, "no attempt", objstore.CreateResolved(t.Context(), s, "untaken", objstore.Bytes(nil), objstore.PutOptions{}), objstore.ErrRejected)
	expect(t, s, "taken", []byte("theirs"))
}

func testCheck(t *testing.T, s objstore.Store) {
	if err := objstore.Check(t.Context(), s, objstore.Location{}); err != nil {
		t.Fatalf("check an empty store: %v", err)
	}
	create(t, s, "x", objstore.Bytes([]byte("x")), attempt("a"))
	if err := objstore.Check(t.Context(), s, objstore.Location{}); err != nil {
		t.Fatalf("check a store with an object: %v", err)
	}
}
