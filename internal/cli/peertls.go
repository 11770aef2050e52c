// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/varve/varve/broker"
)

// peerTLS is mutual TLS between nodes. The files are read again when they change, so that a certificate can be renewed without a
// restart; while the new ones cannot be read the old ones stay in use.
type peerTLS struct {
	files tlsFiles

	mu struct {
		sync.Mutex
		changed time.Time // the newest modification time of the files in use
		looked  time.Time
		pair    *tls.Certificate
		pool    *x509.CertPool
	}
}

// peerFilesInterval is how often the files are looked at, at most.
const peerFilesInterval = time.Second

// openPeerTLS reads the files, nil when none is given.
func openPeerTLS(files tlsFiles) (*peerTLS, error) {
	if files == (tlsFiles{}) {
		return nil, nil
	}
	if files.ca == "" || files.cert == "" || files.key == "" {
		return nil, usagef("--inter-broker-tls-cert, --inter-broker-tls-key and --inter-broker-tls-ca go together: nodes prove who they are to each other")
	}
	t := &peerTLS{files: files}
	if _, _, err := t.current(); err != nil {
		return nil, err
	}
	return t, nil
}

// current gives the certificate and the authorities in force.
func (t *peerTLS) current() (*tls.Certificate, *x509.CertPool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.pair != nil && time.Since(t.mu.looked) < peerFilesInterval {
		return t.mu.pair, t.mu.pool, nil
	}
	t.mu.looked = time.Now()
	changed, err := newest(t.files.ca, t.files.cert, t.files.key)
	if err == nil && t.mu.pair != nil && changed.Equal(t.mu.changed) {
		return t.mu.pair, t.mu.pool, nil
	}
	var pair *tls.Certificate
	var pool *x509.CertPool
	if err == nil {
		pair, pool, err = t.files.read()
	}
	if err != nil {
		if t.mu.pair != nil {
			return t.mu.pair, t.mu.pool, nil // being replaced just now, or by something that is none
		}
		return nil, nil, err
	}
	t.mu.pair, t.mu.pool, t.mu.changed = pair, pool, changed
	return pair, pool, nil
}

func newest(files ...string) (at time.Time, err error) {
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return at, usagef("--inter-broker-tls-…: %s", err)
		}
		if info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at, nil
}

func (f tlsFiles) read() (*tls.Certificate, *x509.CertPool, error) {
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, nil, usagef("--inter-broker-tls-ca: %s", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, usagef("--inter-broker-tls-ca %s holds no certificate in PEM form", f.ca)
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, nil, usagef("--inter-broker-tls-cert and --inter-broker-tls-key: %s", err)
	}
	return &pair, pool, nil
}

// server wraps a listener: who connects must show a certificate of the same authority.
func (t *peerTLS) server(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair, pool, err := t.current()
			if err != nil {
				return nil, err
			}
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}, nil
		},
	})
}

// dial connects to another node and checks its certificate against the host that it registered.
func (t *peerTLS) dial(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pair, pool, err := t.current()
	if err != nil {
		return nil, err
	}
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: pool, Certificates: []tls.Certificate{*pair}})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS with %s: %w", address, err), conn.Close())
	}
	return secure, nil
}

// dialer is how this node reaches others.
func (t *peerTLS) dialer() broker.DialFunc {
	if t == nil {
		return dialTCP
	}
	return t.dial
}
