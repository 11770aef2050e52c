// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// S3 is a running S3 server with one bucket. Both servers take a directory of their data directory for a bucket, so that
// making one needs no client.
type S3 struct {
	*Process
	// Name is the server's.
	Name string
	// Host is host:port.
	Host string
	// CA is a file with the certificate of a server that speaks https; empty: http.
	CA                   string
	Bucket               string
	AccessKey, SecretKey string
}

// Endpoint returns the server's URL.
func (s *S3) Endpoint() string {
	if s.CA != "" {
		return "https://" + s.Host
	}
	return "http://" + s.Host
}

// S3Servers are the servers that tests run against, by name.
var S3Servers = map[string]func(testing.TB) *S3{"versitygw": VersityGW, "minio": MinIO}

// S3ServersTLS are the same with https.
var S3ServersTLS = map[string]func(testing.TB, Certificate) *S3{"versitygw": VersityGWTLS, "minio": MinIOTLS}

const (
	testAccessKey = "varve-test"
	testSecretKey = "varve-test-secret"
	testBucket    = "varve-bucket"
)

// KMSKey is the name of the one key that the MinIO of these tests can encrypt with.
const KMSKey = "varve-test-key"

// VersityGW starts a versitygw on a temporary directory.
func VersityGW(t testing.TB) *S3 { return VersityGWTLS(t, Certificate{}) }

// VersityGWTLS is VersityGW with https.
func VersityGWTLS(t testing.TB, c Certificate) *S3 {
	t.Helper()
	bin := Tool(t, "versitygw")
	return startS3(t, "versitygw", c, func(host, dir string) *exec.Cmd {
		data := filepath.Join(dir, "data")
		mkdir(t, filepath.Join(data, testBucket))
		args := []string{"-a", testAccessKey, "-s", testSecretKey, "-p", host, "--quiet", "--keep-alive"}
		if c.Cert != "" {
			args = append(args, "--cert", c.Cert, "--key", c.Key)
		}
		return exec.Command(bin, append(args, "posix", "--enable-odirect", "--data-integrity-etag", data)...)
	})
}

// MinIO starts a minio on a temporary directory.
func MinIO(t testing.TB) *S3 { return MinIOTLS(t, Certificate{}) }

// MinIOTLS is MinIO with https.
func MinIOTLS(t testing.TB, c Certificate) *S3 {
	t.Helper()
	bin := Tool(t, "minio")
	return startS3(t, "minio", c, func(host, dir string) *exec.Cmd {
		data, certs := filepath.Join(dir, "data"), filepath.Join(dir, "certs")
		mkdir(t, filepath.Join(data, testBucket))
		mkdir(t, certs)
		if c.Cert != "" {
			copyFile(t, filepath.Join(certs, "public.crt"), c.Cert)
			copyFile(t, filepath.Join(certs, "private.key"), c.Key)
		}
		cmd := exec.Command(bin, "server", "--quiet", "--certs-dir", certs, "--address", host,
			"--console-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t))), data)
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+testAccessKey, "MINIO_ROOT_PASSWORD="+testSecretKey, "MINIO_BROWSER=off", "MINIO_UPDATE=off", "HOME="+dir,
			"MINIO_KMS_SECRET_KEY="+KMSKey+":"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
		return cmd
	})
}

func copyFile(t testing.TB, to, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatalf("copy a file of a server: %v", err)
	}
}

func mkdir(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("make a server's directory: %v", err)
	}
}

func startS3(t testing.TB, name string, c Certificate, command func(host, dir string) *exec.Cmd) *S3 {
	t.Helper()
	dir := serverDir(t, name)
	var last error
	for range startTries {
		s := &S3{Name: name, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t))), Bucket: testBucket, AccessKey: testAccessKey, SecretKey: testSecretKey, CA: c.Cert}
		p, err := start(t, command(s.Host, dir), func() error { return s.answers("/" + s.Bucket + "/probe") })
		if err == nil {
			s.Process = p
			return s
		}
		last = err
	}
	t.Fatalf("start %s: %v", name, last)
	return nil
}

// serverDir is a temporary directory that outlives the server: it is removed after the cleanup that stops the server,
// and its removal may fail without failing the test, as a server may still be writing its last files.
func serverDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "varve-"+name+"-")
	if err != nil {
		t.Fatalf("make a directory for %s: %v", name, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// answers asks for a path and takes any status below 500 as the word of a server that serves.
func (s *S3) answers(path string) error {
	// Whether the certificate is good is the driver's question.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: probeTimeout}).Get(s.Endpoint() + path)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return nil
}
