// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/metadata/metadatatest"
)

func harness() metadatatest.Harness {
	s := memory.New()
	return metadatatest.Harness{
		Client: func(*testing.T) metadata.KV { return s.Client() },
		Outage: func(*testing.T) func() {
			s.SetOutage(true)
			return func() { s.SetOutage(false) }
		},
	}
}

func TestKV(t *testing.T) { metadatatest.KV(t, harness()) }

func TestStore(t *testing.T) { metadatatest.Store(t, harness()) }
