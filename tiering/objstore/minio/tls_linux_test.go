// SPDX-License-Identifier: Apache-2.0

package minio_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/minio"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

// tlsCertificate is made before anything else: Go reads SSL_CERT_FILE once in a process.
var tlsCertificate testenv.Certificate

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "varve-minio-tls-")
	if err == nil {
		tlsCertificate, err = testenv.NewCertificate(dir)
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", tlsCertificate.Cert)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// TestConformanceTLS: over https bodies are sent without signatures.
func TestConformanceTLS(t *testing.T) {
	for name, start := range testenv.S3ServersTLS {
		t.Run(name, func(t *testing.T) {
			server := start(t, tlsCertificate)
			fresh := func(t testing.TB) objstore.Store {
				l, err := objstore.ParseURL(fmt.Sprintf("minio://%s/%s/p%d/x", server.Host, server.Bucket, prefixes.Add(1)))
				if err != nil {
					t.Fatal(err)
				}
				store, err := minio.New(t.Context(), l, objstore.Credentials{AccessKey: server.AccessKey, SecretKey: server.SecretKey})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				return store
			}
			if name == "versitygw" {
				t.Log("only how bodies are sent: of a body that is cut off, versitygw may keep the beginning as an object when there is no signature; CreateResolved tells it by its size")
				objstoretest.RunLarge(t, fresh)
				return
			}
			objstoretest.RunSmall(t, fresh)
		})
	}
}
