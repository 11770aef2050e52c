// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/varve/varve/tiering/objstore"
)

// TestCredentialsRotate: a credentials file is read again within its life; one that is half written or gone makes requests retriable, and does
// not end anything.
func TestCredentialsRotate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", absent)
	t.Setenv("AWS_CONFIG_FILE", absent)
	t.Setenv("AWS_CA_BUNDLE", "")
	l, err := objstore.ParseURL("s3://bucket?region=us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		write("AWS_ACCESS_KEY_ID=first\nAWS_SECRET_ACCESS_KEY=s1\n")
		cfg, err := loadConfig(t.Context(), l, objstore.Credentials{File: file}, awshttp.NewBuildableClient())
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when string, want aws.Credentials) {
			t.Helper()
			got, err := cfg.Credentials.Retrieve(t.Context())
			if err != nil || got.AccessKeyID != want.AccessKeyID || got.SecretAccessKey != want.SecretAccessKey || got.SessionToken != want.SessionToken {
				t.Errorf("%s: %s %s %s, %v; want %s", when, got.AccessKeyID, got.SecretAccessKey, got.SessionToken, err, want.AccessKeyID)
			}
		}
		first := aws.Credentials{AccessKeyID: "first", SecretAccessKey: "s1"}
		expect("at start", first)
		write("AWS_ACCESS_KEY_ID=second\nAWS_SECRET_ACCESS_KEY=s2\nAWS_SESSION_TOKEN=t2\n")
		expect("before its life is over", first)
		time.Sleep(fileCredentialsLife)
		expect("after it", aws.Credentials{AccessKeyID: "second", SecretAccessKey: "s2", SessionToken: "t2"})
		write("AWS_ACCESS_KEY_ID=third\n")
		time.Sleep(fileCredentialsLife)
		if _, err := cfg.Credentials.Retrieve(t.Context()); !errors.Is(err, objstore.ErrUnavailable) {
			t.Errorf("half written: %v, want an error that is tried again", err)
		}
		write("AWS_ACCESS_KEY_ID=third\nAWS_SECRET_ACCESS_KEY=s3\n")
		expect("whole again", aws.Credentials{AccessKeyID: "third", SecretAccessKey: "s3"})
	})
}
