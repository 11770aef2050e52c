// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	defaultHTTPPort = "9644"
	envHTTP         = "VARVE_HTTP"
	envHTTPToken    = "VARVE_HTTP_TOKEN_FILE"
)

// opsClient asks a node's operations API what the Kafka protocol has no request for. Any node will do, so one that is away is
// passed over.
type opsClient struct {
	conn      *connection
	addresses string // as --http
	tokenFile string
	answering string // the node that answered last; it is asked first
}

func addOps(cmd *cobra.Command, conn *connection) *opsClient {
	o := &opsClient{conn: conn}
	known := os.Getenv(envHTTP)
	from := "env " + envHTTP
	if known == "" { // else the flag library shows it as the default
		from += "; default: port " + defaultHTTPPort + " of the --bootstrap hosts"
	}
	cmd.Flags().StringVar(&o.addresses, "http", known, "HTTP addresses of nodes, `HOST:PORT[,HOST:PORT]`; the first that answers is asked ("+from+")")
	return o
}

func (o *opsClient) addToken(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.tokenFile, "http-token-file", os.Getenv(envHTTPToken), "`FILE` with the token that the node was started with (env "+envHTTPToken+")")
}

// bases are the URLs of the nodes in the order to ask them, each once.
func (o *opsClient) bases() (bases []string, err error) {
	addresses := strings.Split(o.addresses, ",")
	if o.addresses == "" {
		addresses = o.defaultAddresses()
	}
	if o.answering != "" {
		bases = append(bases, o.answering)
	}
	for _, address := range addresses {
		base, err := httpBase(strings.TrimSpace(address))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

// defaultAddresses are the usual port of each host that --bootstrap names. Kafka's protocol does not tell the HTTP addresses.
func (o *opsClient) defaultAddresses() (out []string) {
	for seed := range strings.SplitSeq(o.conn.bootstrap, ",") {
		host, _, err := net.SplitHostPort(strings.TrimSpace(seed))
		if err != nil {
			host = strings.TrimSpace(seed)
		}
		out = append(out, net.JoinHostPort(host, defaultHTTPPort))
	}
	return out
}

// httpBase is the URL of a node at HOST:PORT or, behind a proxy, at a URL.
func httpBase(address string) (string, error) {
	with := address
	if !strings.Contains(address, "://") {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", usagef("--http %q is not HOST:PORT", address)
		}
		with = "http://" + address
	}
	u, err := url.Parse(with)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usagef("--http %q is not HOST:PORT", address)
	}
	return strings.TrimRight(with, "/"), nil
}

// call sends a request to the first node that can be reached and reads its JSON answer into answer.
func (o *opsClient) call(ctx context.Context, method, path string, body, answer any) error {
	bases, err := o.bases()
	if err != nil {
		return err
	}
	var payload []byte
	if body != nil {
		if payload, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var away []*unreachable
	for _, base := range bases {
		var u *unreachable
		err := o.ask(ctx, base, method, path, payload, answer)
		if !errors.As(err, &u) || ctx.Err() != nil {
			o.answering = base
			return err
		}
		away = append(away, u)
	}
	return nobodyAnswers(away)
}

// ask sends a request to one node. The error is an unreachable when another node may be asked instead.
func (o *opsClient) ask(ctx context.Context, base, method, path string, payload []byte, answer any) error {
	ctx, cancel := o.conn.within(ctx)
	defer cancel()
	var body io.Reader
	if payload != nil {
		body = bytes.NewReader(payload)
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return usagef("--http: %s", err)
	}
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return usagef("--http-token-file: %s", err)
		}
		text := strings.TrimSpace(string(token))
		if text == "" {
			return usagef("--http-token-file %s is empty", o.tokenFile)
		}
		req.Header.Set("Authorization", "Bearer "+text)
	}
	resp, err := opsHTTP.Do(req)
	if err != nil {
		return notAnswered(ctx, base, method, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxHTTPAnswerBytes))
	if err != nil {
		return notAnswered(ctx, base, method, fmt.Errorf("reading the answer: %w", err))
	}
	if err := o.unauthorized(base, resp); err != nil {
		return err
	}
	return decodeAnswer(base, resp, b, answer)
}

// unauthorized says what to do about a node's refusal in the words of the command line; nil: it is none.
func (o *opsClient) unauthorized(base string, resp *http.Response) error {
	asks := resp.Header.Get("WWW-Authenticate")
	switch {
	case resp.StatusCode != http.StatusUnauthorized || !strings.Contains(asks, `realm="varve"`):
		return nil
	case o.tokenFile == "":
		return fmt.Errorf("%s: this needs the token that the node was started with: --http-token-file FILE (env %s)", base, envHTTPToken)
	case strings.Contains(asks, `error="invalid_token"`):
		return fmt.Errorf("%s: the token in %s is wrong: --http-token-file (env %s) needs that with which the node was started", base, o.tokenFile, envHTTPToken)
	}
	return nil // something between here and there takes the token away: what the node says tells that
}

// opsHTTP gives up soon on a host that is gone, so that the next one is asked.
var opsHTTP = &http.Client{Transport: func() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: httpDialTimeout}).DialContext
	return t
}()}

// unreachable says why a node gave no answer.
type unreachable struct{ base, reason string }

func (u *unreachable) Error() string { return u.base + ": " + u.reason }

// notAnswered tells what is safe to ask of another node: a request that changes something only while it was not sent.
func notAnswered(ctx context.Context, base, method string, err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // the URL is told already
	}
	reason := err.Error()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		reason = "nothing listens there"
	case ctx.Err() != nil:
		reason = context.Cause(ctx).Error()
	}
	var dial *net.OpError
	if method != http.MethodGet && !(errors.As(err, &dial) && dial.Op == "dial") {
		return fmt.Errorf("asking %s: %s; it may have done it all the same", base, reason)
	}
	return &unreachable{base, reason}
}

func nobodyAnswers(away []*unreachable) error {
	if len(away) == 1 {
		return fmt.Errorf("asking %w; --http HOST:PORT[,HOST:PORT] names the HTTP addresses of nodes that run", away[0])
	}
	var each []string
	for _, u := range away {
		each = append(each, u.Error())
	}
	return fmt.Errorf("no node answers: %s; --http HOST:PORT[,HOST:PORT] names the HTTP addresses of nodes that run", strings.Join(each, ", "))
}

func decodeAnswer(base string, resp *http.Response, body []byte, answer any) error {
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, answer); err != nil {
			return fmt.Errorf("%s answers something else than the operations API (%w); check --http", base, err)
		}
		return nil
	}
	var failure struct{ Error string }
	if json.Unmarshal(body, &failure) != nil || failure.Error == "" {
		failure.Error = excerpt(body)
	}
	if resp.StatusCode == http.StatusNotFound && json.Valid(body) {
		return errors.New(failure.Error) // it says what is not there; which node says so, and with which status, adds nothing
	}
	return fmt.Errorf("%s: %s: %s", base, resp.Status, failure.Error)
}
