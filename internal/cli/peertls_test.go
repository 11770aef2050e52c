// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, a.template("authority", true), a.template("authority", true), &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) template(name string, ca bool) *x509.Certificate {
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if ca {
		c.KeyUsage |= x509.KeyUsageCertSign
	}
	return c
}

// issue writes the files of one node.
func (a *authority) issue(dir, name string) tlsFiles {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, a.template(name, false), a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	files := tlsFiles{ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{
		files.ca: {Type: "CERTIFICATE", Bytes: a.cert.Raw}, files.cert: {Type: "CERTIFICATE", Bytes: der}, files.key: {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return files
}

func peerTLSOf(t *testing.T, files tlsFiles) *peerTLS {
	t.Helper()
	p, err := openPeerTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serveOnce accepts connections and says "hello" to those that prove who they are.
func serveOnce(t *testing.T, p *peerTLS) (address string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := p.server(inner)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("hello")) // a refused peer is told by the handshake
				_ = c.Close()
			}()
		}
	}()
	return inner.Addr().String()
}

func greeted(c net.Conn, err error) bool {
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second)) // a server that waits for a handshake says nothing
	b, _ := io.ReadAll(c)
	return string(b) == "hello"
}

func TestPeerTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	one, two, stranger := peerTLSOf(t, ours.issue(t.TempDir(), "one")), peerTLSOf(t, ours.issue(t.TempDir(), "two")), peerTLSOf(t, theirs.issue(t.TempDir(), "stranger"))
	at := serveOnce(t, one)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if !greeted(two.dial(ctx, at)) {
		t.Error("a node of the cluster was refused")
	}
	if greeted(stranger.dial(ctx, at)) {
		t.Error("a node of another authority trusted this one, or was trusted")
	}
	if greeted(tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true})) {
		t.Error("a peer without a certificate was let in")
	}
	if greeted(dialTCP(ctx, at)) {
		t.Error("a peer without TLS was let in")
	}
}

// TestPeerTLSReload: certificates are renewed without a restart, and files that cannot be read do not end what works.
func TestPeerTLSReload(t *testing.T) {
	dir := t.TempDir()
	old, renewed := newAuthority(t), newAuthority(t)
	p := peerTLSOf(t, old.issue(dir, "node"))
	at := serveOnce(t, p)
	other := peerTLSOf(t, renewed.issue(t.TempDir(), "other"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	again := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.looked = time.Time{}
	}
	if err := os.WriteFile(filepath.Join(dir, "cert.pem"), []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	again()
	if _, _, err := p.current(); err != nil {
		t.Errorf("a bad certificate replaced a good one: %v", err)
	}
	if greeted(other.dial(ctx, at)) {
		t.Fatal("the other authority was trusted before the renewal")
	}
	renewed.issue(dir, "node")
	again()
	if !greeted(other.dial(ctx, at)) {
		t.Error("the renewed files are not in use")
	}
}

func TestPeerTLSFilesGoTogether(t *testing.T) {
	if _, err := openPeerTLS(tlsFiles{cert: "a"}); err == nil {
		t.Error("a certificate without key and authority was taken")
	}
}
