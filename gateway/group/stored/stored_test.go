// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"bytes"
	"testing"
)

// TestLimit: what Seal gives can be opened or is as large as it was, so that the bound on stored groups refuses it.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name       string
		size       int
		compressed bool
	}{
		{"small", compressFrom - 1, false},
		{"compressed", compressFrom, true},
		{"at the limit", maxBytes + 1, true}, // the first byte is not compressed
		{"over the limit", maxBytes + 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := make([]byte, c.size)
			b[0] = Consumer
			sealed := Seal(b)
			if compressed := sealed[0] == ConsumerCompressed; compressed != c.compressed {
				t.Fatalf("%d bytes: format %d", c.size, sealed[0])
			}
			format, r, err := Open(sealed)
			if err != nil || format != Consumer {
				t.Fatalf("format %d, %v", format, err)
			}
			if !bytes.Equal(r.b, b[1:]) {
				t.Error("it is another state")
			}
		})
	}
}
