// SPDX-License-Identifier: Apache-2.0

package minio

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/tiering/objstore"
)

// TestCredentialsRotate: a credentials file is read again within its life; one that is half written leaves the last good content in force.
func TestCredentialsRotate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write("MINIO_ACCESS_KEY=first\nMINIO_SECRET_KEY=s1\n")
		creds, err := findCredentials(objstore.Credentials{File: file})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when, access, secret string) {
			t.Helper()
			if got, err := creds.GetWithContext(nil); err != nil || got.AccessKeyID != access || got.SecretAccessKey != secret {
				t.Errorf("%s: %s %s, %v; want %s %s", when, got.AccessKeyID, got.SecretAccessKey, err, access, secret)
			}
		}
		expect("at start", "first", "s1")
		write("MINIO_ACCESS_KEY=second\nMINIO_SECRET_KEY=s2\n")
		expect("before its life is over", "first", "s1")
		time.Sleep(fileCredentialsLife + 1)
		expect("after it", "second", "s2")
		write("MINIO_ACCESS_KEY=third\n")
		time.Sleep(fileCredentialsLife + 1)
		expect("half written", "second", "s2")
		write("MINIO_ACCESS_KEY=third\nMINIO_SECRET_KEY=s3\n")
		time.Sleep(fileCredentialsLife + 1)
		expect("whole again", "third", "s3")
	})
}
