// SPDX-License-Identifier: Apache-2.0

package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/tiering/objstore"
)

// s3Case is one request under one fault, and how the driver must report it.
type s3Case struct {
	name string
	rule ProxyRule
	op   objstore.Op
	want error // nil: success
	// applied: the object is there (create) or gone (delete) afterwards.
	applied bool
}

// s3Cases is the table of answers of the seam, as seen through HTTP.
var s3Cases = []s3Case{
	{"create, reply lost", ProxyRule{Method: "PUT", Effect: DropReply}, objstore.OpCreate, objstore.ErrUnknownOutcome, true},
	{"create, request lost", ProxyRule{Method: "PUT", Effect: DropRequest}, objstore.OpCreate, objstore.ErrUnknownOutcome, false},
	{"create, 503 SlowDown", ProxyRule{Method: "PUT", Effect: Answer, Status: 503, Code: "SlowDown"}, objstore.OpCreate, objstore.ErrUnavailable, false},
	{"create, 503 of a proxy after the commit", ProxyRule{Method: "PUT", Effect: Answer, Status: 503, After: true}, objstore.OpCreate, objstore.ErrUnknownOutcome, true},
	{"create, 502 after the commit", ProxyRule{Method: "PUT", Effect: Answer, Status: 502, After: true}, objstore.OpCreate, objstore.ErrUnknownOutcome, true},
	{"create, 500 after the commit", ProxyRule{Method: "PUT", Effect: Answer, Status: 500, Code: "InternalError", After: true}, objstore.OpCreate, objstore.ErrUnknownOutcome, true},
	{"create, 409", ProxyRule{Method: "PUT", Effect: Answer, Status: 409, Code: "ConditionalRequestConflict"}, objstore.OpCreate, objstore.ErrUnavailable, false},
	{"create, 412", ProxyRule{Method: "PUT", Effect: Answer, Status: 412, Code: "PreconditionFailed"}, objstore.OpCreate, objstore.ErrExists, false},
	{"create, 403", ProxyRule{Method: "PUT", Effect: Answer, Status: 403, Code: "AccessDenied"}, objstore.OpCreate, objstore.ErrDenied, false},
	{"create, no bucket", ProxyRule{Method: "PUT", Effect: Answer, Status: 404, Code: "NoSuchBucket"}, objstore.OpCreate, objstore.ErrNoBucket, false},
	{"create, 400", ProxyRule{Method: "PUT", Effect: Answer, Status: 400, Code: "InvalidArgument"}, objstore.OpCreate, objstore.ErrRejected, false},
	{"create, 501", ProxyRule{Method: "PUT", Effect: Answer, Status: 501, Code: "NotImplemented"}, objstore.OpCreate, objstore.ErrRejected, false},
	{"create, bytes changed on the way", ProxyRule{Method: "PUT", Effect: Answer, Status: 400, Code: "BadDigest"}, objstore.OpCreate, objstore.ErrUnavailable, false},
	{"get, 503", ProxyRule{Method: "GET", Effect: Answer, Status: 503, Code: "SlowDown"}, objstore.OpGet, objstore.ErrUnavailable, true},
	{"get, 500", ProxyRule{Method: "GET", Effect: Answer, Status: 500, Code: "InternalError"}, objstore.OpGet, objstore.ErrUnavailable, true},
	{"get, reply lost", ProxyRule{Method: "GET", Effect: DropReply}, objstore.OpGet, objstore.ErrUnavailable, true},
	{"get, body cut", ProxyRule{Method: "GET", Effect: TruncateBody}, objstore.OpGet, objstore.ErrUnavailable, true},
	{"get, range ignored", ProxyRule{Method: "GET", Effect: IgnoreRange}, objstore.OpGet, objstore.ErrUnavailable, true},
	{"get, another range", ProxyRule{Method: "GET", Effect: WrongRange}, objstore.OpGet, objstore.ErrUnavailable, true},
	{"get, 404", ProxyRule{Method: "GET", Effect: Answer, Status: 404, Code: "NoSuchKey"}, objstore.OpGet, objstore.ErrNotFound, true},
	{"get, no bucket", ProxyRule{Method: "GET", Effect: Answer, Status: 404, Code: "NoSuchBucket"}, objstore.OpGet, objstore.ErrNoBucket, true},
	{"get, 416", ProxyRule{Method: "GET", Effect: Answer, Status: 416, Code: "InvalidRange"}, objstore.OpGet, objstore.ErrRange, true},
	{"get, bad key id", ProxyRule{Method: "GET", Effect: Answer, Status: 403, Code: "InvalidAccessKeyId"}, objstore.OpGet, objstore.ErrDenied, true},
	{"get, bad signature", ProxyRule{Method: "GET", Effect: Answer, Status: 403, Code: "SignatureDoesNotMatch"}, objstore.OpGet, objstore.ErrDenied, true},
	{"stat, 503", ProxyRule{Method: "HEAD", Effect: Answer, Status: 503}, objstore.OpStat, objstore.ErrUnavailable, true},
	{"stat, 404", ProxyRule{Method: "HEAD", Effect: Answer, Status: 404}, objstore.OpStat, objstore.ErrNotFound, true},
	{"stat, 403", ProxyRule{Method: "HEAD", Effect: Answer, Status: 403}, objstore.OpStat, objstore.ErrDenied, true},
	{"stat, reply lost", ProxyRule{Method: "HEAD", Effect: DropReply}, objstore.OpStat, objstore.ErrUnavailable, true},
	{"list, 503", ProxyRule{Method: "GET", Effect: Answer, Status: 503, Code: "SlowDown"}, objstore.OpList, objstore.ErrUnavailable, true},
	{"list, body cut", ProxyRule{Method: "GET", Effect: TruncateBody}, objstore.OpList, objstore.ErrUnavailable, true},
	{"list, no bucket", ProxyRule{Method: "GET", Effect: Answer, Status: 404, Code: "NoSuchBucket"}, objstore.OpList, objstore.ErrNoBucket, true},
	{"delete, reply lost", ProxyRule{Method: "DELETE", Effect: DropReply}, objstore.OpDelete, objstore.ErrUnknownOutcome, true},
	{"delete, 503", ProxyRule{Method: "DELETE", Effect: Answer, Status: 503, Code: "SlowDown"}, objstore.OpDelete, objstore.ErrUnavailable, false},
	{"delete, 404", ProxyRule{Method: "DELETE", Effect: Answer, Status: 404, Code: "NoSuchKey"}, objstore.OpDelete, nil, false},
	{"delete, 403", ProxyRule{Method: "DELETE", Effect: Answer, Status: 403, Code: "AccessDenied"}, objstore.OpDelete, objstore.ErrDenied, false},
}

// RunS3Faults checks a driver of the S3 protocol behind a proxy: every fault is reported as what it is, each call sends one
// request, and rule 1 and Retry put things right. open opens a fresh prefix through the proxy.
func RunS3Faults(t *testing.T, p *Proxy, open func(testing.TB) objstore.Store) {
	for _, c := range s3Cases {
		t.Run(c.name, func(t *testing.T) { runS3Case(t, p, open(t), c) })
	}
	t.Run("flipped bit", func(t *testing.T) { testFlippedBit(t, p, open(t)) })
	t.Run("some deletes fail", func(t *testing.T) { testSomeDeletesFail(t, p, open(t)) })
	t.Run("create resolved", func(t *testing.T) { testS3Resolved(t, p, open(t)) })
	t.Run("retry", func(t *testing.T) { testS3Retry(t, p, open(t)) })
	t.Run("deadline", func(t *testing.T) { testS3Deadline(t, p, open(t)) })
	t.Run("multipart", func(t *testing.T) { testS3Multipart(t, p, open) })
	t.Run("plain store", func(t *testing.T) { testPlainStore(t, p, open(t)) })
}

func runS3Case(t *testing.T, p *Proxy, s objstore.Store, c s3Case) {
	body := Random(5, 10_000)
	p.Set()
	if c.op != objstore.OpCreate {
		create(t, s, "object", body, attempt("a"))
	}
	p.Set(c.rule)
	var err error
	prefix := []byte("kept")
	switch c.op {
	case objstore.OpCreate:
		err = s.Create(t.Context(), "object", body, attempt("a"))
	case objstore.OpGet:
		var got []byte
		got, err = s.Get(t.Context(), "object", 100, 5000, prefix)
		if !bytes.Equal(got, prefix) {
			t.Errorf("a failed get left %d bytes", len(got))
		}
	case objstore.OpStat:
		_, err = s.Stat(t.Context(), "object")
	case objstore.OpList:
		err = s.List(t.Context(), "", "", func(objstore.Info) error { return nil })
	case objstore.OpDelete:
		err = s.Delete(t.Context(), []string{"object"})[0]
	}
	if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
		t.Errorf("got %v, want %v", err, c.want)
	}
	if c.want != nil && objstore.OutcomeOf(err) != objstore.OutcomeOf(c.want) {
		t.Errorf("outcome %s, want %s: %v", objstore.OutcomeOf(err), objstore.OutcomeOf(c.want), err)
	}
	// Go's HTTP client itself repeats a GET or HEAD whose connection broke before an answer; mutations go out once.
	if n := len(p.Requests()); n != 1 && (c.op == objstore.OpCreate || c.op == objstore.OpDelete) {
		t.Errorf("%d requests, want 1", n)
	}
	p.Set()
	_, err = s.Stat(t.Context(), "object")
	there := !errors.Is(err, objstore.ErrNotFound)
	if err != nil && there {
		t.Fatal(err)
	}
	if want := c.applied != (c.op == objstore.OpDelete); there != want {
		t.Errorf("object there: %v, want %v", there, want)
	}
}

// testFlippedBit: nobody below the segment reader can see it; the driver must hand on what came, in the right length.
func testFlippedBit(t *testing.T, p *Proxy, s objstore.Store) {
	p.Set()
	body := Content(Random(6, 9000))
	create(t, s, "flip", objstore.Bytes(body), attempt("a"))
	p.Set(ProxyRule{Method: "GET", Effect: FlipBit})
	got, err := s.Get(t.Context(), "flip", 0, 9000, nil)
	if err != nil || len(got) != 9000 || bytes.Equal(got, body) {
		t.Fatalf("get: %d bytes, %v, equal %v", len(got), err, bytes.Equal(got, body))
	}
}

// testSomeDeletesFail: each key has its own result (faults D9), and Retry repeats only what failed.
func testSomeDeletesFail(t *testing.T, p *Proxy, s objstore.Store) {
	p.Set()
	keys := []string{"del/a-bad", "del/b", "del/c-bad", "del/d"}
	createMany(t, s, keys)
	p.Set(ProxyRule{Method: "DELETE", Path: "bad", Effect: Answer, Status: 500, Code: "InternalError"})
	for i, err := range s.Delete(t.Context(), keys) {
		if bad := strings.Contains(keys[i], "bad"); bad != errors.Is(err, objstore.ErrUnknownOutcome) || !bad && err != nil {
			t.Errorf("delete %s: %v", keys[i], err)
		}
	}
	p.Set(ProxyRule{Method: "DELETE", Path: "bad", Effect: Answer, Status: 503, Code: "SlowDown", Times: 3})
	for i, err := range objstore.Retry(s, fastRetry).Delete(t.Context(), keys) {
		if err != nil {
			t.Errorf("delete %s again: %v", keys[i], err)
		}
	}
	if n := len(p.Requests()); n != 4+3 {
		t.Errorf("%d requests for 4 keys and 3 failures, want 7", n)
	}
	expectList(t, s, nil, "del/", "")
}

var fastRetry = objstore.RetryOptions{Tries: 8, BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond}

// testS3Resolved: lost replies and conflicts end in the truth.
func testS3Resolved(t *testing.T, p *Proxy, s objstore.Store) {
	body := Random(8, 300_000)
	for i, rules := range [][]ProxyRule{
		{{Method: "PUT", Effect: DropReply, Times: 1}},
		{{Method: "PUT", Effect: DropRequest, Times: 2}},
		{{Method: "PUT", Effect: DropReply, Times: 1}, {Method: "HEAD", Effect: Answer, Status: 503, Times: 2}},
		{{Method: "PUT", Effect: Answer, Status: 409, Code: "ConditionalRequestConflict", Times: 2}},
		{{Method: "PUT", Effect: Answer, Status: 500, Code: "InternalError", After: true, Times: 1}, {Method: "HEAD", Effect: Answer, Status: 404, Times: 1}},
	} {
		p.Set(rules...)
		key := "resolved/" + string(rune('a'+i))
		if err := objstore.CreateResolved(t.Context(), s, key, body, attempt("mine")); err != nil {
			t.Errorf("rules %d: %v", i, err)
		}
		p.Set()
		expect(t, s, key, Content(body))
	}
	// As long as the doubt stays, so does the error.
	p.Set(ProxyRule{Method: "PUT", Effect: DropReply}, ProxyRule{Method: "HEAD", Effect: Answer, Status: 503})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantErr(t, "unresolved", objstore.CreateResolved(ctx, s, "resolved/doubt", body, attempt("mine")), objstore.ErrUnknownOutcome)
}

func testS3Retry(t *testing.T, p *Proxy, s objstore.Store) {
	r := objstore.Retry(s, fastRetry)
	p.Set(ProxyRule{Effect: Answer, Status: 503, Code: "SlowDown", Times: 3})
	body := Random(9, 20_000)
	create(t, r, "retry", body, attempt("a"))
	p.Set(ProxyRule{Method: "GET", Effect: TruncateBody, Times: 3})
	got, err := r.Get(t.Context(), "retry", 0, 20_000, nil)
	if err != nil || !bytes.Equal(got, Content(body)) {
		t.Fatalf("get after truncated bodies: %v", err)
	}
	p.Set(ProxyRule{Method: "GET", Effect: Answer, Status: 404, Code: "NoSuchKey", Times: 1})
	_, err = r.Get(t.Context(), "retry", 0, 1, nil)
	wantErr(t, "a 404 is an answer", err, objstore.ErrNotFound)
}

// testS3Deadline: a store that never answers ends the call with its deadline, and a mutation is then in doubt.
func testS3Deadline(t *testing.T, p *Proxy, s objstore.Store) {
	p.Set()
	create(t, s, "held", objstore.Bytes([]byte("x")), attempt("a"))
	p.Set(ProxyRule{Effect: HoldReply})
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	ctx, cancel := short()
	defer cancel()
	_, err := s.Get(ctx, "held", 0, 1, nil)
	wantErr(t, "get", err, objstore.ErrUnavailable)
	wantErr(t, "get", err, context.DeadlineExceeded)
	ctx, cancel = short()
	defer cancel()
	err = s.Create(ctx, "held/new", objstore.Bytes([]byte("x")), attempt("a"))
	wantErr(t, "create", err, objstore.ErrUnknownOutcome)
	ctx, cancel = short()
	defer cancel()
	wantErr(t, "delete", s.Delete(ctx, []string{"held"})[0], objstore.ErrUnknownOutcome)
	p.Set()
}

// testS3Multipart: faults at each step of a multipart upload.
func testS3Multipart(t *testing.T, p *Proxy, open func(testing.TB) objstore.Store) {
	body := Random(21, largeSize)
	crc, err := objstore.BodyCRC32C(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		rule ProxyRule
		want error
	}{
		{"begin 503", ProxyRule{Method: "POST", Query: "uploads", Effect: Answer, Status: 503, Code: "SlowDown"}, objstore.ErrUnavailable},
		{"part 503", ProxyRule{Method: "PUT", Query: "partNumber=2", Effect: Answer, Status: 503}, objstore.ErrUnavailable},
		{"part reset", ProxyRule{Method: "PUT", Query: "partNumber=2", Effect: DropReply}, objstore.ErrUnavailable},
		{"upload lost", ProxyRule{Method: "PUT", Query: "partNumber=2", Effect: Answer, Status: 404, Code: "NoSuchUpload"}, objstore.ErrUploadLost},
		{"complete 412", ProxyRule{Method: "POST", Query: "uploadId", Effect: Answer, Status: 412, Code: "PreconditionFailed"}, objstore.ErrExists},
		{"complete 409", ProxyRule{Method: "POST", Query: "uploadId", Effect: Answer, Status: 409, Code: "ConditionalRequestConflict"}, objstore.ErrUnavailable},
		{"complete fails in a 200", ProxyRule{Method: "POST", Query: "uploadId", Effect: Answer, Status: 200, Code: "InternalError"}, objstore.ErrUnknownOutcome},
		{"complete lost", ProxyRule{Method: "POST", Query: "uploadId", Effect: DropReply}, objstore.ErrUnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			p.Set(c.rule)
			o := attempt("m")
			o.CRC32C = crc
			wantErr(t, "create", s.Create(t.Context(), "large", body, o), c.want)
			aborts := 0
			for _, r := range p.Requests() {
				if r.Method == http.MethodDelete && r.URL.Query().Has("uploadId") {
					aborts++
				}
			}
			begun := !strings.HasPrefix(c.name, "begin")
			if doubt := errors.Is(c.want, objstore.ErrUnknownOutcome); (aborts == 1) != (begun && !doubt) {
				t.Errorf("%d aborts", aborts)
			}
		})
	}
	t.Run("complete lost, resolved", func(t *testing.T) {
		s := open(t)
		p.Set(ProxyRule{Method: "POST", Query: "uploadId", Effect: DropReply, Times: 1})
		o := attempt("m")
		o.CRC32C = crc
		if err := objstore.CreateResolved(t.Context(), s, "large", body, o); err != nil {
			t.Fatal(err)
		}
		p.Set()
		expect(t, s, "large", Content(body))
	})
}

// testPlainStore: a store that knows neither checksum headers nor trailers (faults D1) serves a whole cycle.
func testPlainStore(t *testing.T, p *Proxy, s objstore.Store) {
	p.Set()
	for key, size := range map[string]int64{"plain/small": 1000, "plain/middle": 1 << 20, "plain/large": largeSize} {
		body := Random(uint64(size), size)
		create(t, s, key, body, attempt("p"))
		expect(t, s, key, Content(body))
	}
	if err := s.Delete(t.Context(), []string{"plain/small"})[0]; err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Requests() {
		for name, values := range r.Header {
			lower := strings.ToLower(name)
			if strings.HasPrefix(lower, "x-amz-checksum-") || lower == "x-amz-trailer" || lower == "x-amz-sdk-checksum-algorithm" {
				t.Errorf("%s %s sends %s: %q", r.Method, r.URL.Path, name, values)
			}
		}
	}
}

// RunS3Check checks that the probe at start tells the mistakes of a configuration apart, each on one line with its remedy.
// open opens a store at a host (host:port), a bucket and a secret key.
func RunS3Check(t *testing.T, host, bucket, secret string, open func(t testing.TB, host, bucket, secret string) (objstore.Store, objstore.Location)) {
	for _, c := range []struct {
		name, host, bucket, secret string
		want                       error
		remedy                     string
	}{
		{"right", host, bucket, secret, nil, ""},
		{"nobody listens", "127.0.0.1:1", bucket, secret, objstore.ErrUnavailable, "cannot reach the store at"},
		{"wrong secret", host, bucket, secret + "x", objstore.ErrDenied, "the store refuses the credentials"},
		{"no bucket", host, "no-such-bucket", secret, objstore.ErrNoBucket, `no bucket "no-such-bucket": create it`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, l := open(t, c.host, c.bucket, c.secret)
			err := objstore.Check(t.Context(), s, l)
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil && (!strings.Contains(err.Error(), c.remedy) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), c.secret)) {
				t.Errorf("%q: not one line with %q, or it shows the secret", err, c.remedy)
			}
		})
	}
}
