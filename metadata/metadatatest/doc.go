// SPDX-License-Identifier: Apache-2.0

// Package metadatatest is what every implementation of metadata.KV must pass, alone (KV) and under the domain layer (Store). It
// also has the decorator that loses requests and answers of any implementation.
package metadatatest

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
)

// Harness is one store under test. Tests of one harness do not run at the same time.
type Harness struct {
	// Client gives a new client. The suite closes it.
	Client func(t *testing.T) metadata.KV
	// Outage takes the store away and brings it back; nil when the harness cannot.
	Outage func(t *testing.T) (restore func())
}

var prefixes atomic.Int64

// prefix is a part of the key space that no other test uses.
func prefix(t *testing.T) string {
	t.Helper()
	return "/test" + time.Now().Format("150405.000000000") + "-" + string(rune('a'+prefixes.Add(1)%26)) + "/"
}

func client(t *testing.T, h Harness) metadata.KV {
	t.Helper()
	kv := h.Client(t)
	t.Cleanup(func() {
		if err := kv.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return kv
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
