// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net"
	"time"

	"github.com/varve/varve/gateway/quota"
)

// addressOf is where a connection comes from, without the port.
func addressOf(nc net.Conn) string {
	text := nc.RemoteAddr().String()
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		return text
	}
	return host
}

// tooManyFrom tells whether connections come from an address faster than its quota lets. As in Kafka such a connection is not served,
// and closed only after the delay, so that a client that comes again at once is slowed down. The nodes' own listener has no quota.
func (s *Server) tooManyFrom(nc net.Conn, address, listener string) bool {
	t := s.quotas.table()
	if !t.Has(quota.Connection) || listener == s.cfg.InterBroker {
		return false
	}
	now, from := time.Now(), quota.Client{User: address}
	d := s.quotas.meters.Record(t, quota.Connection, from, now, 1)
	if d <= 0 {
		return false
	}
	s.quotas.meters.Unrecord(t, quota.Connection, from, now, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || len(s.mu.refused) >= maxDelayedCloses {
		_ = nc.Close()
		return true
	}
	s.mu.refused[nc] = time.AfterFunc(d, func() {
		s.mu.Lock()
		delete(s.mu.refused, nc)
		s.mu.Unlock()
		_ = nc.Close()
	})
	return true
}
