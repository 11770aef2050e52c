// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stalled listens to the client library's log while nothing is acknowledged: only there does it say why it sends records again. Otherwise it takes
// nothing, so that writing costs what it costs without.
type stalled struct {
	off  atomic.Bool            // acknowledgements come
	code atomic.Pointer[string] // the last answer to a batch
	err  atomic.Pointer[string] // the last request that failed; not of a broker with the partition, it may be
}

// listen begins to take what the library says, and forgets what it said of an earlier stall.
func (s *stalled) listen() {
	if s.off.Swap(false) {
		s.code.Store(nil)
		s.err.Store(nil)
	}
}

// Level implements kgo.Logger.
func (s *stalled) Level() kgo.LogLevel {
	if s.off.Load() {
		return kgo.LogLevelNone
	}
	return kgo.LogLevelDebug
}

// retried is how the library notes the answer to a batch that it sends again.
var retried = regexp.MustCompile(`retrying@-?\d+,\d+\(([^)]*)\)`)

// Log implements kgo.Logger.
func (s *stalled) Log(_ kgo.LogLevel, _ string, keyvals ...any) {
	for i := 1; i < len(keyvals); i += 2 {
		switch v := keyvals[i].(type) {
		case error:
			if v != nil && !errors.Is(v, errStopped) {
				text := oneLine(v.Error())
				s.err.Store(&text)
			}
		case string:
			if m := retried.FindAllStringSubmatch(v, -1); len(m) > 0 {
				text := oneLine(m[len(m)-1][1])
				s.code.Store(&text)
			}
		}
	}
}

// why is the last trouble heard of, as the end of a sentence: rather what a broker answered than a connection that failed.
func (s *stalled) why() string {
	for _, heard := range []*string{s.code.Load(), s.err.Load()} {
		if heard != nil {
			return "; last heard: " + strings.TrimRight(*heard, ".")
		}
	}
	return ""
}
