// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is one decoded request and who sent it. Body's strings are its own; its byte slices live in the request's frame, so a
// handler that keeps one beyond its return must copy it.
type Request struct {
	Key       int16
	Version   int16
	ClientID  string // "" when null
	Listener  string // name of the listener it came through
	Principal string // "User:ANONYMOUS" where nobody authenticates
	Peer      string // remote address
	Body      kmsg.Request

	// throttle is how long the connection is quiet after the answer, which says so.
	throttle time.Duration
}

// handlerFunc serves one request and returns its answer, whose version the connection sets. An error closes the connection
// with a log line: errors of the request itself belong into the answer. ctx ends when the connection or the server does.
type handlerFunc func(s *Server, ctx context.Context, r *Request) (kmsg.Response, error)

// begun is a request that is being served. finish waits for the outcome and gives the answer; ready tells that it would not wait.
type begun struct {
	ready  func() bool
	finish func() (kmsg.Response, error)
}

// beginFunc begins to serve a request. It runs in the reader when nothing
// before it on the connection waits for its turn, else in the writer as soon as that has been answered, so it must not take long.
type beginFunc func(s *Server, ctx context.Context, r *Request) *begun

// api is one row of the API table.
type api struct {
	key  int16
	name string // Kafka's name, as metrics show it
	// min and max are advertised (G2).
	min, max int16
	// refuseBelow: advertised but refused, as Kafka does with Produce 0-2. silentBelow: how many versions below min are served
	// without being advertised, for old clients that never ask.
	refuseBelow, silentBelow int16
	body                     func() kmsg.Request
	serve                    handlerFunc
	// begin stands in place of serve where what a request asks for can be under way before its turn to be answered.
	begin beginFunc
	// records: the request carries record batches, so its frame may be as large as socket.request.max.bytes.
	records bool
	// flexibleFrom is the first version with tagged fields; newTable fills it.
	flexibleFrom int16
	// The data path has its own decoders and encoders: decode and start run in the reader, finish when the turn to be answered
	// has come. They replace body and serve.
	decode func(c *call, body []byte) error
	start  func(s *Server, ctx context.Context, c *call)
	finish func(s *Server, ctx context.Context, c *call, a *answer) error
}

// anonymous is who sends on a listener without authentication.
const anonymous = "User:ANONYMOUS"
