// SPDX-License-Identifier: Apache-2.0

package mem_test

import (
	"context"
	"testing"

	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

func TestConformance(t *testing.T) {
	objstoretest.Run(t, func(testing.TB) objstore.Store { return mem.NewStore() })
}

func open(t *testing.T, url string) objstore.Store {
	t.Helper()
	l, err := objstore.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.New(context.Background(), l, objstore.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Stores of one name share objects, also after one was closed; unnamed ones do not.
func TestNamed(t *testing.T) {
	a, b, other, unnamed := open(t, "mem://shared"), open(t, "mem://shared"), open(t, "mem://other"), open(t, "mem://")
	if err := a.Create(t.Context(), "k", objstore.Bytes([]byte("v")), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if _, err := b.Stat(t.Context(), "k"); err != nil {
		t.Fatalf("the other of the name: %v", err)
	}
	for _, s := range []objstore.Store{other, unnamed, open(t, "mem://")} {
		if _, err := s.Stat(t.Context(), "k"); objstore.OutcomeOf(err) != objstore.OutcomeNotFound {
			t.Fatalf("another store: %v", err)
		}
	}
}
