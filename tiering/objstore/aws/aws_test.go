// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/aws"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

var prefixes atomic.Int64

// open opens a fresh prefix of a server's bucket. No AWS configuration of the machine takes part.
func open(t testing.TB, s *testenv.S3, endpoint, extra string) objstore.Store {
	t.Helper()
	raw := fmt.Sprintf("s3://%s/p%d/x?endpoint=%s&path-style=true%s", s.Bucket, prefixes.Add(1), url.QueryEscape(endpoint), extra)
	l, err := objstore.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	store, err := aws.New(context.Background(), l, objstore.Credentials{AccessKey: s.AccessKey, SecretKey: s.SecretKey})
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
			objstoretest.Run(t, func(t testing.TB) objstore.Store { return open(t, server, server.Endpoint(), "") })
			// The other setting changes only how bodies are sent.
			t.Run("checksum=when-supported", func(t *testing.T) {
				objstoretest.RunLarge(t, func(t testing.TB) objstore.Store {
					return open(t, server, server.Endpoint(), "&checksum=when-supported")
				})
			})
		})
	}
}

func TestFaults(t *testing.T) {
	server := testenv.VersityGW(t)
	proxy := objstoretest.NewProxy(t, server.Host)
	objstoretest.RunS3Faults(t, proxy, func(t testing.TB) objstore.Store { return open(t, server, proxy.URL, "") })
}

func TestCheck(t *testing.T) {
	for name, start := range testenv.S3Servers {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			objstoretest.RunS3Check(t, server.Host, server.Bucket, server.SecretKey, func(t testing.TB, host, bucket, secret string) (objstore.Store, objstore.Location) {
				l, err := objstore.ParseURL(fmt.Sprintf("s3://%s?endpoint=http://%s", bucket, host))
				if err != nil {
					t.Fatal(err)
				}
				s, err := aws.New(t.Context(), l, objstore.Credentials{AccessKey: server.AccessKey, SecretKey: secret})
				if err != nil {
					t.Fatal(err)
				}
				return s, l
			})
		})
	}
}

// isolate hides the machine's own AWS configuration.
func isolate(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", absent)
	t.Setenv("AWS_CONFIG_FILE", absent)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestCredentials(t *testing.T) {
	server := testenv.VersityGW(t)
	isolate(t)
	l, err := objstore.ParseURL(fmt.Sprintf("s3://%s?endpoint=%s", server.Bucket, server.Endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, c objstore.Credentials, want error) {
		t.Helper()
		s, err := aws.New(t.Context(), l, c)
		if err == nil {
			err = objstore.Check(t.Context(), s, l)
		}
		if want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	check("none", objstore.Credentials{}, objstore.ErrDenied)
	dir := t.TempDir()
	shared, file := filepath.Join(dir, "shared"), filepath.Join(dir, "file")
	if err := os.WriteFile(shared, []byte("[work]\naws_access_key_id="+server.AccessKey+"\naws_secret_access_key="+server.SecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", shared)
	t.Setenv("AWS_PROFILE", "work")
	check("a profile", objstore.Credentials{}, nil)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	t.Setenv("AWS_PROFILE", "")
	check("the environment", objstore.Credentials{}, objstore.ErrDenied)
	if err := os.WriteFile(file, []byte("AWS_ACCESS_KEY_ID="+server.AccessKey+"\nAWS_SECRET_ACCESS_KEY="+server.SecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("a file before the environment", objstore.Credentials{File: file}, nil)
	check("an absent file", objstore.Credentials{File: file + "x"}, objstore.ErrDenied)
}

// Without an endpoint of its own, AWS needs a region; the start says so.
func TestNoRegion(t *testing.T) {
	isolate(t)
	l, err := objstore.ParseURL("s3://bucket")
	if err != nil {
		t.Fatal(err)
	}
	_, err = aws.New(t.Context(), l, objstore.Credentials{AccessKey: "a", SecretKey: "b"})
	if !errors.Is(err, objstore.ErrURL) || !strings.Contains(err.Error(), "add ?region=") {
		t.Fatal(err)
	}
}
