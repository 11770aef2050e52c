// SPDX-License-Identifier: Apache-2.0

package objstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve/varve/tiering/objstore"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]objstore.Location{
		"s3://bucket":  {Scheme: "s3", Bucket: "bucket", Checksum: "when-required"},
		"s3://bucket/": {Scheme: "s3", Bucket: "bucket", Checksum: "when-required"},
		"s3://my.bucket-1/a/b?region=eu-central-1&sse=aws:kms&kms-key=arn:aws:kms:x&storage-class=STANDARD_IA&checksum=when-supported&path-style=true": {
			Scheme: "s3", Bucket: "my.bucket-1", Prefix: "a/b/", Region: "eu-central-1", SSE: "aws:kms", KMSKey: "arn:aws:kms:x", StorageClass: "STANDARD_IA", Checksum: "when-supported", PathStyle: true},
		"s3://bucket/p/?endpoint=http://127.0.0.1:9000/":              {Scheme: "s3", Bucket: "bucket", Prefix: "p/", Endpoint: "http://127.0.0.1:9000", PathStyle: true, Checksum: "when-required"},
		"s3://bucket?endpoint=http://127.0.0.1:9000&path-style=false": {Scheme: "s3", Bucket: "bucket", Endpoint: "http://127.0.0.1:9000", Checksum: "when-required"},
		"s3://bucket?endpoint=https://s3.example.com":                 {Scheme: "s3", Bucket: "bucket", Endpoint: "https://s3.example.com", Checksum: "when-required"},
		"minio://store:9000/bucket/deep/prefix?tls=false":             {Scheme: "minio", Endpoint: "store:9000", Bucket: "bucket", Prefix: "deep/prefix/", Checksum: "when-required"},
		"minio://store.example.com/bucket":                            {Scheme: "minio", Endpoint: "store.example.com", Bucket: "bucket", TLS: true, Checksum: "when-required"},
		"minio://[::1]:9000/bucket?region=x":                          {Scheme: "minio", Endpoint: "[::1]:9000", Bucket: "bucket", TLS: true, Region: "x", Checksum: "when-required"},
		"file:///var/lib/varve":                                       {Scheme: "file", Dir: filepath.FromSlash("/var/lib/varve"), Checksum: "when-required"},
		"file:///with%20space/../x/":                                  {Scheme: "file", Dir: filepath.FromSlash("/x"), Checksum: "when-required"},
		"mem://":                                                      {Scheme: "mem", Checksum: "when-required"},
		"mem://name":                                                  {Scheme: "mem", Bucket: "name", Checksum: "when-required"},
	} {
		got, err := objstore.ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got.String() != raw {
			t.Errorf("%s: text %s", raw, got)
		}
		want, _ := withText(want, raw)
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", raw, got, want)
		}
	}
}

// withText sets the unexported text by way of a URL that parses.
func withText(l objstore.Location, raw string) (objstore.Location, error) {
	p, err := objstore.ParseURL(raw)
	text := p
	text.Scheme, text.Bucket, text.Prefix, text.Dir, text.Endpoint, text.TLS = l.Scheme, l.Bucket, l.Prefix, l.Dir, l.Endpoint, l.TLS
	text.Region, text.PathStyle, text.SSE, text.KMSKey, text.StorageClass, text.Checksum = l.Region, l.PathStyle, l.SSE, l.KMSKey, l.StorageClass, l.Checksum
	return text, err
}

// Every mistake gets one line that names it and, where there is one, the right form.
func TestParseURLErrors(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                       "it is empty; write s3://",
		"bucket":                                 "no scheme",
		"/a/dir":                                 "no scheme",
		"http://host/bucket":                     `unknown scheme "http"; s3, minio, file and mem are known`,
		"S4://bucket":                            `unknown scheme "s4"`,
		"s3:bucket":                              "lacks the slashes",
		"s3://":                                  "no bucket; write s3://bucket/prefix",
		"s3:///prefix":                           "no bucket",
		"s3://host:9000/bucket":                  "has a port; for another store than AWS write s3://bucket/prefix?endpoint=",
		"s3://Bucket":                            `bucket "Bucket" is no bucket name`,
		"s3://ab":                                "is no bucket name",
		"s3://bucket/a//b":                       "prefix",
		"s3://bucket/../b":                       "prefix",
		"s3://bucket?regoin=x":                   `unknown parameter "regoin"; s3:// takes checksum, endpoint, kms-key, path-style, region, sse, storage-class`,
		"s3://bucket?path-style=yes":             "path-style=yes: neither true nor false",
		"s3://bucket?path-style":                 "neither true nor false",
		"s3://bucket?region=":                    "region=: it is empty",
		"s3://bucket?region=a&region=b":          "parameter region is given 2 times",
		"s3://bucket?checksum=always":            "checksum=always: neither when-required nor when-supported",
		"s3://bucket?sse=yes":                    "sse=yes: neither AES256, aws:kms nor aws:kms:dsse",
		"s3://bucket?kms-key=k":                  "kms-key needs sse=aws:kms",
		"s3://bucket?sse=AES256&kms-key=k":       "kms-key needs sse=aws:kms",
		"s3://bucket?endpoint=127.0.0.1:9000":    "write http://host:port",
		"s3://bucket?endpoint=http://h/bucket":   "an endpoint has no path",
		"s3://bucket?endpoint=http://h:99999":    "no host:port",
		"s3://bucket?endpoint=http://u:secret@h": "",
		"s3://bucket?a;b":                        "query",
		"s3://bucket#x":                          "fragment",
		"s3://key:secret@bucket":                 "it holds a user or password; give credentials by environment",
		"s3://key:secret@bucket:x":               "not a URL",
		"minio://":                               "no host; write minio://host:port/bucket/prefix",
		"minio:///bucket":                        "no host",
		"minio://host:9000":                      "no bucket; write minio://host:port/bucket/prefix",
		"minio://host:0/bucket":                  "no host:port",
		"minio://host:/bucket":                   "no host:port",
		"minio://host/bucket?tls=0":              "tls=0: neither true nor false",
		"minio://host/bucket?endpoint=x":         `unknown parameter "endpoint"; minio:// takes checksum, region, tls`,
		"file://dir/sub":                         "write three slashes and an absolute path: file:///dir",
		"file://":                                "no directory; write file:///dir",
		"file:///":                               "no directory",
		"file:dir":                               "lacks the slashes",
		"file:///dir?x=1":                        `unknown parameter "x"; file:// takes none`,
		"mem://name/path":                        "has a path; write mem:// or mem://name",
	} {
		_, err := objstore.ParseURL(raw)
		switch {
		case !errors.Is(err, objstore.ErrURL):
			t.Errorf("%s: %v", raw, err)
		case !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: %q does not say %q on one line", raw, err, want)
		case strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error repeats the secret: %v", raw, err)
		}
	}
}

func TestReadCredentialsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials")
	for content, want := range map[string]string{
		"[default]\naws_access_key_id = A\naws_secret_access_key=S=+/\naws_session_token = T\n": "A S=+/ T",
		"# comment\nexport MINIO_ACCESS_KEY=A\nMINIO_SECRET_KEY='S'\nOTHER=x\n":                 "A S ",
		"AWS_ACCESS_KEY_ID=A\r\nAWS_SECRET_ACCESS_KEY=\"S\"\r\n":                                "A S ",
		"[default]\naws_access_key_id=A\naws_secret_access_key=S\n[other]\naws_access_key_id=B": "A S ",
		"[other]\naws_access_key_id=A\naws_secret_access_key=S\n":                               "lacks",
		"AWS_ACCESS_KEY_ID=A\n": "lacks",
		"":                      "lacks",
		"AWS_ACCESS_KEY_ID A\n": "line 1 is not NAME=VALUE",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := objstore.ReadCredentialsFile(path)
		got := c.AccessKey + " " + c.SecretKey + " " + c.SessionToken
		if err != nil {
			if got = err.Error(); !errors.Is(err, objstore.ErrDenied) {
				t.Errorf("%q: %v", content, err)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", content, got, want)
		}
	}
	if _, err := objstore.ReadCredentialsFile(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, objstore.ErrDenied) {
		t.Errorf("absent file: %v", err)
	}
}

// TestObjectURL: an object's URL keeps the bucket's prefix and parameters, and is one that names the object when it is read again.
func TestObjectURL(t *testing.T) {
	for bucket, want := range map[string]string{
		"minio://h:9000/varve?tls=false":               "minio://h:9000/varve/a/b.seg?tls=false",
		"minio://h:9000/varve/one/two/?tls=false":      "minio://h:9000/varve/one/two/a/b.seg?tls=false",
		"s3://logs/prefix?region=eu-central-1":         "s3://logs/prefix/a/b.seg?region=eu-central-1",
		"file:///var/lib/varve%20data/bucket":          "file:///var/lib/varve%20data/bucket/a/b.seg",
		"mem://name":                                   "",
		"s3://logs?endpoint=http%3A%2F%2F1.2.3.4%3A80": "s3://logs/a/b.seg?endpoint=http%3A%2F%2F1.2.3.4%3A80",
	} {
		l, err := objstore.ParseURL(bucket)
		if err != nil {
			t.Fatal(err)
		}
		got := l.ObjectURL("a/b.seg")
		if got != want {
			t.Errorf("%s: %s, want %s", bucket, got, want)
		}
		if again, err := objstore.ParseURL(got); want != "" && (err != nil || l.Scheme != objstore.SchemeFile && again.Prefix != l.Prefix+"a/b.seg/") {
			t.Errorf("%s: %+v, %v", got, again, err)
		}
	}
}
