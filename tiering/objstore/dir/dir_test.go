// SPDX-License-Identifier: Apache-2.0

package dir_test

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/dir"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

func open(t testing.TB, path string) objstore.Store {
	t.Helper()
	l, err := objstore.ParseURL((&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.New(context.Background(), l, objstore.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	objstoretest.Run(t, func(t testing.TB) objstore.Store { return open(t, t.TempDir()) })
}
