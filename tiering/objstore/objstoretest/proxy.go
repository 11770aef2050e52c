// SPDX-License-Identifier: Apache-2.0

package objstoretest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ProxyEffect is what Proxy does to a request (S3P of the fault catalogue).
type ProxyEffect string

const (
	// DropReply lets the server answer, then resets the connection.
	DropReply ProxyEffect = "drop-response-after-commit"
	// DropRequest resets the connection; the server sees nothing.
	DropRequest ProxyEffect = "drop-request"
	// Answer answers ProxyRule.Status and Code; the server sees nothing.
	Answer ProxyEffect = "answer"
	// TruncateBody sends half of the body, with the headers of the whole, and resets the connection.
	TruncateBody ProxyEffect = "truncate-body"
	// FlipBit flips one bit in the middle of the body.
	FlipBit ProxyEffect = "flip-bit"
	// IgnoreRange sends the whole object, as some caches do.
	IgnoreRange ProxyEffect = "ignore-range"
	// WrongRange sends another range of the same length.
	WrongRange ProxyEffect = "wrong-range"
	// HoldReply waits for ProxyRule.Release, or the client's end, before it answers.
	HoldReply ProxyEffect = "hold"
)

// ProxyRule strikes requests whose method, path and query contain what it names.
type ProxyRule struct {
	Method, Path, Query string
	// Nth is the first match that suffers (0: the first), Times how many do (0: all).
	Nth, Times int
	Effect     ProxyEffect
	Status     int
	Code       string
	// After: Answer replaces an answer that the server has given.
	After   bool
	Release <-chan struct{}

	seen int
}

// Proxy stands before a real S3 server. It changes neither Host nor headers, so that signatures hold.
type Proxy struct {
	// URL and Host of the proxy.
	URL, Host string
	upstream  string
	transport *http.Transport

	mu struct {
		sync.Mutex
		rules    []*ProxyRule
		requests []*http.Request
	}
}

// NewProxy starts a proxy before the server at host:port. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	p := &Proxy{upstream: upstream, transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		p.transport.CloseIdleConnections()
	})
	p.URL = server.URL
	p.Host = strings.TrimPrefix(server.URL, "http://")
	return p
}

// Set replaces the rules and forgets the requests seen.
func (p *Proxy) Set(rules ...ProxyRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.requests = nil
	p.mu.rules = nil
	for _, r := range rules {
		p.mu.rules = append(p.mu.rules, &r)
	}
}

// Requests returns the requests seen since Set, without their bodies.
func (p *Proxy) Requests() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*http.Request(nil), p.mu.requests...)
}

// strike notes the request and returns the rule it suffers.
func (p *Proxy) strike(r *http.Request) ProxyRule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.requests = append(p.mu.requests, r)
	for _, rule := range p.mu.rules {
		if (rule.Method != "" && rule.Method != r.Method) || !strings.Contains(r.URL.Path, rule.Path) || !strings.Contains(r.URL.RawQuery, rule.Query) {
			continue
		}
		rule.seen++
		if first := max(rule.Nth, 1); rule.seen >= first && (rule.Times == 0 || rule.seen < first+rule.Times) {
			return *rule
		}
	}
	return ProxyRule{}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule := p.strike(r)
	switch {
	case rule.Effect == DropRequest:
		reset(w)
		return
	case rule.Effect == Answer && !rule.After:
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, r, rule)
		return
	}
	resp, err := p.forward(r, rule)
	if err != nil {
		reset(w)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		reset(w)
		return
	}
	switch rule.Effect {
	case DropReply:
		reset(w)
		return
	case Answer:
		answer(w, r, rule)
		return
	case HoldReply:
		select {
		case <-rule.Release:
		case <-r.Context().Done():
			return
		}
	case FlipBit:
		if len(body) > 0 {
			body[len(body)/2] ^= 0x10
		}
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(resp.StatusCode)
	if rule.Effect == TruncateBody {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		reset(w)
		return
	}
	_, _ = w.Write(body)
}

// forward sends the request on as it is; what a rule does about ranges it does to the answer, as requests are signed.
func (p *Proxy) forward(r *http.Request, rule ProxyRule) (*http.Response, error) {
	out := r.Clone(r.Context())
	if rule.Effect != HoldReply {
		// Once sent, the request is the server's: that the client gives up does not undo it.
		out = r.Clone(context.WithoutCancel(r.Context()))
	}
	out.URL.Scheme, out.URL.Host = "http", p.upstream
	out.RequestURI = ""
	out.Header.Del("Expect")
	out.Header.Del("Connection")
	resp, err := p.transport.RoundTrip(out)
	if err != nil || (rule.Effect != IgnoreRange && rule.Effect != WrongRange) {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if rule.Effect == IgnoreRange {
		resp.StatusCode = http.StatusOK
		resp.Header.Del("Content-Range")
		body = append(body, body...)
	} else {
		var first, last, total int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); err != nil {
			return nil, err
		}
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first+1, last+1, total+1))
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, nil
}

// answer sends an S3 error.
func answer(w http.ResponseWriter, r *http.Request, rule ProxyRule) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	body := ""
	if rule.Code != "" {
		body = `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>" + rule.Code + "</Code><Message>injected</Message><RequestId>1</RequestId></Error>"
	}
	w.WriteHeader(rule.Status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body)
	}
}

// reset breaks the connection so that the client sees a reset, not an end.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
