// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config is how the port is guarded. The zero value refuses everything that needs a token.
type Config struct {
	// TokenFile holds the bearer token. It is read at each use, so that a token can be changed without a restart.
	TokenFile string
}

// Validate refuses a token file that cannot be used.
func (c Config) Validate() error {
	if c.TokenFile == "" {
		return nil
	}
	_, err := readToken(c.TokenFile)
	return err
}

// Server answers on the HTTP port.
type Server struct {
	cfg    Config
	node   Node
	logger *slog.Logger
	mux    *http.ServeMux
}

// New builds the server. Metrics come from gatherer.
func New(cfg Config, node Node, gatherer prometheus.Gatherer, logger *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, node: node, logger: logger, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: promLog{logger}}))
	s.mux.HandleFunc("GET /v1/cluster", s.cluster)
	s.mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.node.Config()) })
	s.mux.HandleFunc("GET /v1/topics/{topic}", s.topic)
	s.mux.HandleFunc("GET /v1/topics/{topic}/partitions/{partition}/segments", s.segments)
	s.mux.HandleFunc("GET /v1/why/{topic}", s.why)
	s.mux.Handle("POST /v1/tick/{job}", s.guarded(s.tick))
	s.mux.HandleFunc("GET /v1/nodes", s.nodes)
	s.mux.Handle("POST /v1/nodes/{node}/drain", s.guarded(s.drain(true)))
	s.mux.Handle("POST /v1/nodes/{node}/undrain", s.guarded(s.drain(false)))
	s.mux.Handle("POST /v1/cluster/upgrade", s.guarded(s.upgrade))
	s.mux.Handle("GET /debug/pprof/", s.guarded(pprof.Index))
	s.mux.Handle("GET /debug/pprof/cmdline", s.guarded(pprof.Cmdline))
	s.mux.Handle("GET /debug/pprof/profile", s.guarded(pprof.Profile))
	s.mux.Handle("GET /debug/pprof/symbol", s.guarded(pprof.Symbol))
	s.mux.Handle("GET /debug/pprof/trace", s.guarded(pprof.Trace))
	return s, nil
}

// Handler is the server without a listener.
func (s *Server) Handler() http.Handler { return http.MaxBytesHandler(s.mux, maxBodyBytes) }

// Run serves on ln until ctx is done, lets running requests finish for a while and returns when all are gone.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:    slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			srv.Close() // a profile or a slow reader: it is cut off
		}
	})
	err := srv.Serve(ln)
	if stop() { // Serve failed by itself
		return fmt.Errorf("ops: serving HTTP on %s: %w", ln.Addr(), err)
	}
	<-stopped
	return nil
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.node.Ready(); err != nil {
		writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
		return
	}
	writeText(w, http.StatusOK, "ok")
}

func (s *Server) cluster(w http.ResponseWriter, r *http.Request) {
	c, err := s.node.Cluster(r.Context())
	answer(w, c, err)
}

func (s *Server) topic(w http.ResponseWriter, r *http.Request) {
	t, err := s.node.Topic(r.Context(), r.PathValue("topic"))
	answer(w, t, err)
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	partition := int64(-1)
	if v := r.URL.Query().Get("partition"); v != "" {
		var err error
		if partition, err = strconv.ParseInt(v, 10, 32); err != nil || partition < 0 {
			writeError(w, http.StatusBadRequest, fmt.Sprintf("partition=%q is not a number from 0", v))
			return
		}
	}
	why, err := s.node.Why(r.Context(), r.PathValue("topic"), int32(partition))
	answer(w, why, err)
}

func (s *Server) segments(w http.ResponseWriter, r *http.Request) {
	q := SegmentQuery{Topic: r.PathValue("topic"), Limit: defaultSegmentPage}
	partition, err := strconv.ParseInt(r.PathValue("partition"), 10, 32)
	if err != nil || partition < 0 {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("partition %q is not a number from 0", r.PathValue("partition")))
		return
	}
	q.Partition = int32(partition)
	if v := r.URL.Query().Get("from"); v != "" {
		if q.From, err = strconv.ParseInt(v, 10, 64); err != nil || q.From < 0 {
			writeError(w, http.StatusBadRequest, fmt.Sprintf("from=%q is not an offset", v))
			return
		}
	}
	if v := r.URL.Query().Get("limit"); v != "" {
		if q.Limit, err = strconv.Atoi(v); err != nil || q.Limit < 1 || q.Limit > maxSegmentPage {
			writeError(w, http.StatusBadRequest, fmt.Sprintf("limit=%q is not 1 to %d", v, maxSegmentPage))
			return
		}
	}
	page, err := s.node.Segments(r.Context(), q)
	if page.Segments == nil {
		page.Segments = []Segment{}
	}
	answer(w, page, err)
}

func (s *Server) tick(w http.ResponseWriter, r *http.Request) {
	job := r.PathValue("job")
	err := s.node.Tick(r.Context(), job)
	answer(w, map[string]string{"ticked": job}, err)
}

func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) {
	var body struct {
		To int `json:"to"`
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil || body.To < 1 {
		writeError(w, http.StatusBadRequest, `the body must be {"to": VERSION}`)
		return
	}
	c, err := s.node.UpgradeCluster(r.Context(), body.To)
	answer(w, c, err)
}

// guarded lets h answer only those who know the token (O1).
func (s *Server) guarded(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.TokenFile == "" {
			writeError(w, http.StatusForbidden, "this needs a token and the node has none: start it with --http-token-file FILE")
			return
		}
		token, err := readToken(s.cfg.TokenFile)
		if err != nil {
			s.logger.Error("the token file cannot be used", "error", err)
			writeError(w, http.StatusForbidden, "the node's token file cannot be used, see its log")
			return
		}
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="varve"`)
			writeError(w, http.StatusUnauthorized, "this needs the header \"Authorization: Bearer TOKEN\" with the token of the node's --http-token-file")
			return
		}
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 { // that it is wrong, and no more
			w.Header().Set("WWW-Authenticate", `Bearer realm="varve", error="invalid_token"`)
			writeError(w, http.StatusUnauthorized, "the token is wrong: \"Authorization: Bearer TOKEN\" needs that of the node's --http-token-file")
			return
		}
		h(w, r)
	})
}

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--http-token-file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return "", fmt.Errorf("--http-token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxTokenBytes {
		return "", fmt.Errorf("--http-token-file %s must hold a token of 1 to %d bytes", path, maxTokenBytes)
	}
	return token, nil
}

// answer writes a value, or an error under the status that its sentinel stands for.
func answer(w http.ResponseWriter, value any, err error) {
	switch {
	case err == nil:
		writeJSON(w, value)
	case errors.Is(err, ErrNotFound):
		writeError(w, http.StatusNotFound, without(err, ErrNotFound))
	case errors.Is(err, ErrRefused):
		writeError(w, http.StatusConflict, without(err, ErrRefused))
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		writeError(w, http.StatusServiceUnavailable, without(err, ErrUnavailable))
	default:
		writeError(w, http.StatusInternalServerError, err.Error())
	}
}

// without is the error's text without the sentinel that chose the status: the status says it.
func without(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

func writeError(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": text}) // the peer may be gone; nothing else to do
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(value) // as above
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// promLog brings what the metrics handler complains about into the node's log.
type promLog struct{ logger *slog.Logger }

func (p promLog) Println(v ...any) {
	p.logger.Error("metrics", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}
