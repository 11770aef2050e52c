// SPDX-License-Identifier: Apache-2.0

package hotlog

import "testing"

// TestGeneration: the generation and what was seen in it are stored beside each other, each without the other's loss.
func TestGeneration(t *testing.T) {
	fs := NewMemFS()
	open := func() *DB {
		d, err := Open("data", Options{FS: fs.FS(nil)})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	if g := d.Generation(); g != 0 {
		t.Errorf("a new directory has met generation %d", g)
	}
	for _, step := range []func() error{
		func() error { return d.SetWitness(7, 100) }, func() error { return d.SetGeneration(2) }, func() error { return d.SetWitness(8, 50) }, d.Close,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	d = open()
	defer d.Close()
	if id, rev := d.Witness(); id != 8 || rev != 50 || d.Generation() != 2 {
		t.Errorf("after a start: %d of %d in generation %d", rev, id, d.Generation())
	}
}
