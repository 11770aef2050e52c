// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/aws"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

// TestConformanceTLS: over https bodies are sent without a signature of their own.
func TestConformanceTLS(t *testing.T) {
	for name, start := range testenv.S3ServersTLS {
		t.Run(name, func(t *testing.T) {
			cert, err := testenv.NewCertificate(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			server := start(t, cert)
			l, err := objstore.ParseURL(fmt.Sprintf("s3://%s?endpoint=%s", server.Bucket, server.Endpoint()))
			if err != nil {
				t.Fatal(err)
			}
			stranger, err := aws.New(t.Context(), l, objstore.Credentials{AccessKey: server.AccessKey, SecretKey: server.SecretKey})
			if err != nil {
				t.Fatal(err)
			}
			defer stranger.Close()
			if err := objstore.Check(t.Context(), stranger, l); !errors.Is(err, objstore.ErrUnavailable) {
				t.Errorf("a server whose authority is not known: %v", err)
			}
			t.Setenv("AWS_CA_BUNDLE", cert.Cert)
			fresh := func(t testing.TB) objstore.Store { return open(t, server, server.Endpoint(), "") }
			if name == "versitygw" {
				t.Log("only how bodies are sent: of a body that is cut off, versitygw may keep the beginning as an object when there is no signature; CreateResolved tells it by its size")
				objstoretest.RunLarge(t, fresh)
				return
			}
			objstoretest.RunSmall(t, fresh)
		})
	}
}

// TestObjectOptions: what the URL says about storage class and encryption is what the object has, sent in one piece or in parts. Of the
// servers here only MinIO knows these options.
func TestObjectOptions(t *testing.T) {
	server := testenv.MinIO(t)
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: sdk.String(server.Endpoint()), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(server.AccessKey, server.SecretKey, ""),
	})
	for _, c := range []struct{ extra, sse, key, class string }{
		{"", "", "", ""},
		{"&sse=AES256", "AES256", "", ""},
		{"&sse=aws:kms&kms-key=" + testenv.KMSKey, "aws:kms", testenv.KMSKey, ""},
		{"&storage-class=REDUCED_REDUNDANCY", "", "", "REDUCED_REDUNDANCY"},
	} {
		for _, size := range []int{1 << 20, objstore.MaxSingleShot + 1} {
			t.Run(fmt.Sprint(c.extra, " ", size), func(t *testing.T) {
				prefix := prefixes.Load() + 1
				store := open(t, server, server.Endpoint(), c.extra)
				if err := store.Create(t.Context(), "k", objstore.Bytes(bytes.Repeat([]byte("varve"), size/5+1)[:size]), objstore.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				got, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &server.Bucket, Key: sdk.String(fmt.Sprintf("p%d/x/k", prefix))})
				if err != nil {
					t.Fatal(err)
				}
				key := sdk.ToString(got.SSEKMSKeyId)
				if string(got.ServerSideEncryption) != c.sse || (key != c.key && key != "arn:aws:kms:"+c.key) || string(got.StorageClass) != c.class {
					t.Errorf("encryption %q, key %q, class %q", got.ServerSideEncryption, key, got.StorageClass)
				}
				back, err := store.Get(t.Context(), "k", int64(size)-5, 5, nil)
				if err != nil || len(back) != 5 {
					t.Errorf("reading back: %q, %v", back, err)
				}
			})
		}
	}
	t.Run("a key that is not there", func(t *testing.T) {
		store := open(t, server, server.Endpoint(), "&sse=aws:kms&kms-key=no-such-key")
		if err := store.Create(t.Context(), "k", objstore.Bytes([]byte("x")), objstore.PutOptions{}); err == nil {
			t.Error("the object was stored")
		} else {
			t.Log(err)
		}
	})
}
