// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"strings"
	"sync"
)

// Log is written by what is tested while the test reads it. The zero value is empty.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Count tells how many lines hold every one of the words.
func (l *Log) Count(words ...string) (n int) {
lines:
	for line := range strings.Lines(l.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}
