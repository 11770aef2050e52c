// SPDX-License-Identifier: Apache-2.0

package minio_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/minio"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

var prefixes atomic.Int64

// open opens a fresh prefix of a server's bucket.
func open(t testing.TB, s *testenv.S3, host string, more ...string) objstore.Store {
	t.Helper()
	l, err := objstore.ParseURL(fmt.Sprintf("minio://%s/%s/p%d/x?tls=false%s", host, s.Bucket, prefixes.Add(1), strings.Join(more, "")))
	if err != nil {
		t.Fatal(err)
	}
	store, err := minio.New(context.Background(), l, objstore.Credentials{AccessKey: s.AccessKey, SecretKey: s.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func TestConformance(t *testing.T) {
	for name, start := range testenv.S3Servers {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			objstoretest.Run(t, func(t testing.TB) objstore.Store { return open(t, server, server.Host) })
			t.Run("checksum", func(t *testing.T) {
				objstoretest.RunSmall(t, func(t testing.TB) objstore.Store { return open(t, server, server.Host, "&checksum=when-supported") })
			})
		})
	}
}

func TestFaults(t *testing.T) {
	server := testenv.VersityGW(t)
	proxy := objstoretest.NewProxy(t, server.Host)
	objstoretest.RunS3Faults(t, proxy, func(t testing.TB) objstore.Store { return open(t, server, proxy.Host) })
}

// TestNothingHasNoBody: a server that answers the creation of an empty object before it has read the body takes what comes later for
// the next request. So there must be none, not even the end of the chunks.
func TestNothingHasNoBody(t *testing.T) {
	var length atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { length.Store(r.ContentLength) }))
	defer server.Close()
	for _, more := range []string{"", "&checksum=when-supported"} {
		s := open(t, &testenv.S3{Bucket: "bucket", AccessKey: "key", SecretKey: "secret"}, strings.TrimPrefix(server.URL, "http://"), more)
		for _, body := range []string{"x", ""} {
			length.Store(-2)
			if err := s.Create(t.Context(), "key", objstore.Bytes([]byte(body)), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := length.Load(); got == -2 || body == "" && got != 0 {
				t.Errorf("%q%s: a body of %d bytes", body, more, got)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for name, start := range testenv.S3Servers {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			objstoretest.RunS3Check(t, server.Host, server.Bucket, server.SecretKey, func(t testing.TB, host, bucket, secret string) (objstore.Store, objstore.Location) {
				l, err := objstore.ParseURL(fmt.Sprintf("minio://%s/%s?tls=false", host, bucket))
				if err != nil {
					t.Fatal(err)
				}
				s, err := minio.New(t.Context(), l, objstore.Credentials{AccessKey: server.AccessKey, SecretKey: secret})
				if err != nil {
					t.Fatal(err)
				}
				return s, l
			})
		})
	}
}

// A store that speaks http is named as such to a client that expects https, the default.
func TestCheckTLS(t *testing.T) {
	proxy := objstoretest.NewProxy(t, "127.0.0.1:1")
	l, err := objstore.ParseURL("minio://" + proxy.Host + "/bucket")
	if err != nil {
		t.Fatal(err)
	}
	s, err := minio.New(t.Context(), l, objstore.Credentials{AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := objstore.Check(t.Context(), s, l); err == nil || !strings.Contains(err.Error(), "use tls=false") {
		t.Fatal(err)
	}
}

// Credentials come from what is given, MINIO_*, AWS_* or a file, in this order; without any the start ends.
func TestCredentials(t *testing.T) {
	server := testenv.VersityGW(t)
	l, err := objstore.ParseURL(fmt.Sprintf("minio://%s/%s?tls=false", server.Host, server.Bucket))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	check := func(what string, c objstore.Credentials, want error) {
		t.Helper()
		s, err := minio.New(t.Context(), l, c)
		if err == nil {
			err = objstore.Check(t.Context(), s, l)
		}
		if want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	check("none", objstore.Credentials{}, objstore.ErrDenied)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	check("AWS_*", objstore.Credentials{}, nil)
	t.Setenv("MINIO_ACCESS_KEY", server.AccessKey)
	t.Setenv("MINIO_SECRET_KEY", "wrong")
	check("MINIO_* before AWS_*", objstore.Credentials{}, objstore.ErrDenied)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("MINIO_ACCESS_KEY="+server.AccessKey+"\nMINIO_SECRET_KEY="+server.SecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("a file", objstore.Credentials{File: file}, nil)
	check("an absent file", objstore.Credentials{File: file + "x"}, objstore.ErrDenied)
}
