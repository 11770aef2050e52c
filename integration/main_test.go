// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/integration/harness"
	"github.com/varve/varve/internal/testenv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds every wait for something that has to happen. Nothing is expected to take a tenth of it.
const patience = 3 * time.Minute

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
	}
}

// client is a franz-go client that retries without giving up, as its idempotent producer does by default, and soon.
func client(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(100 * time.Millisecond), kgo.DialTimeout(5 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// tokenFile makes the file of a secret for --http-token-file.
func tokenFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(harness.TempDir(t, "token"), "token")
	if err := os.WriteFile(file, []byte("secret of a test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func createTopic(t testing.TB, c *kgo.Client, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = kadm.StringPtr(v)
	}
	if _, err := kadm.NewClient(c).CreateTopic(within(t, patience), partitions, 1, values, topic); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

func alterTopic(t testing.TB, c *kgo.Client, topic string, configs map[string]string) {
	t.Helper()
	var alter []kadm.AlterConfig
	for k, v := range configs {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(v)})
	}
	answers, err := kadm.NewClient(c).AlterTopicConfigs(within(t, patience), alter, topic)
	for _, a := range answers {
		if err == nil {
			err = a.Err
		}
	}
	if err != nil {
		t.Fatalf("alter %s: %v", topic, err)
	}
}

// bucket is a place in a real S3 server, as a URL of one of the drivers.
type bucket struct {
	name, url string
	env       []string
	server    *testenv.S3
}

// s3Bucket and minioBucket reach the same kind of server through the two drivers.
func s3Bucket(t testing.TB, prefix string) bucket {
	t.Helper()
	s := testenv.VersityGW(t)
	return bucket{
		name: "s3", server: s, url: "s3://" + s.Bucket + "/" + prefix + "?region=us-east-1&path-style=true&endpoint=" + s.Endpoint(),
		env: []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_EC2_METADATA_DISABLED=true"},
	}
}

func minioBucket(t testing.TB, prefix string) bucket {
	t.Helper()
	s := testenv.VersityGW(t)
	return bucket{
		name: "minio", server: s, url: "minio://" + s.Host + "/" + s.Bucket + "/" + prefix + "?tls=false",
		env: []string{"MINIO_ACCESS_KEY=" + s.AccessKey, "MINIO_SECRET_KEY=" + s.SecretKey},
	}
}
