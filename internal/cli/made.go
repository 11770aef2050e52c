// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// made are the directories that a start has made, to be taken away again when it is refused: those that this process made itself, if nothing is left
// in them. What is in them goes with whoever holds its lock (hotlog.DB.Discard, embed.Server.Discard).
type made struct {
	dirs []string // outermost first
	kept bool     // others may count on what is there
}

// dir makes a directory and those above it.
func (m *made) dir(path string, mode fs.FileMode) error {
	path = filepath.Clean(path)
	var missing []string
	for at := path; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
	}
	for _, at := range slices.Backward(missing) {
		err := os.Mkdir(at, mode)
		if err == nil {
			m.dirs = append(m.dirs, at)
		} else if !errors.Is(err, fs.ErrExist) { // another process was quicker: it is not ours
			return err
		}
	}
	return nil
}

// maybe notes a directory of this node alone that the next step will make if it is not there.
func (m *made) maybe(path string) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		m.dirs = append(m.dirs, path)
	}
}

// keep leaves everything: from now on others may count on it.
func (m *made) keep() { *m = made{kept: true} }

// remove takes away what is not kept. Nothing may be open in it any more.
func (m *made) remove() {
	for _, path := range slices.Backward(m.dirs) {
		_ = os.Remove(path) // not empty: it is others' as well
	}
	m.keep()
}
