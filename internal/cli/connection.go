// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	defaultBootstrap = "127.0.0.1:9092"
	envBootstrap     = "VARVE_BOOTSTRAP"
	envSASLPassword  = "VARVE_SASL_PASSWORD"
)

// connection holds the flags that every client command takes to reach a cluster.
type connection struct {
	bootstrap string
	timeout   time.Duration

	tls                     bool
	tlsCA, tlsCert, tlsKey  string
	tlsServerName           string
	tlsInsecure             bool
	saslMechanism, saslUser string
	saslPasswordFile        string
}

func addConnection(cmd *cobra.Command) *connection {
	c := new(connection)
	bootstrap := defaultBootstrap
	if v := os.Getenv(envBootstrap); v != "" {
		bootstrap = v
	}
	f := cmd.Flags()
	f.StringVarP(&c.bootstrap, "bootstrap", "b", bootstrap, "brokers to start from, HOST:PORT[,HOST:PORT] (env "+envBootstrap+")")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "give up on one request after this long")
	f.BoolVar(&c.tls, "tls", false, "connect with TLS (implied by the other --tls flags)")
	f.StringVar(&c.tlsCA, "tls-ca", "", "file of PEM certificates that sign the brokers' (default: the system's)")
	f.StringVar(&c.tlsCert, "tls-cert", "", "client certificate, PEM file")
	f.StringVar(&c.tlsKey, "tls-key", "", "key of the client certificate, PEM file")
	f.StringVar(&c.tlsServerName, "tls-server-name", "", "name expected in the brokers' certificates")
	f.BoolVar(&c.tlsInsecure, "tls-insecure", false, "accept any broker certificate")
	f.StringVar(&c.saslMechanism, "sasl-mechanism", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
	f.StringVar(&c.saslUser, "sasl-user", "", "user to log in as")
	f.StringVar(&c.saslPasswordFile, "sasl-password-file", "", "file that holds the password (or env "+envSASLPassword+")")
	return c
}

// open checks the flags, connects and makes sure that a broker answers before the command does its work.
func (c *connection) open(ctx context.Context, extra ...kgo.Opt) (*kgo.Client, error) {
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, usagef("%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, explain("connecting to "+c.bootstrap, err)
	}
	return cl, nil
}

// admin sends administrative requests: kadm's, and raw ones where kadm has none.
type admin struct {
	*kadm.Client
	kafka *kgo.Client
}

// admin is open for commands that send administrative requests only.
func (c *connection) admin(ctx context.Context) (*admin, error) {
	cl, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return c.adminOf(cl), nil
}

// administer connects and gives the time that the command has. done ends both.
func (c *connection) administer(parent context.Context) (ctx context.Context, adm *admin, done func(), err error) {
	if adm, err = c.admin(parent); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := c.within(parent)
	return ctx, adm, func() { cancel(); adm.Close() }, nil
}

// adminOf shares the connections of cl.
func (c *connection) adminOf(cl *kgo.Client) *admin {
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(int32(c.timeout.Milliseconds()))
	return &admin{Client: adm, kafka: cl}
}

func (c *connection) options() ([]kgo.Opt, error) {
	seeds := strings.Split(c.bootstrap, ",")
	for i, s := range seeds {
		if seeds[i] = strings.TrimSpace(s); seeds[i] == "" {
			return nil, usagef("--bootstrap %q has an empty address; write HOST:PORT[,HOST:PORT]", c.bootstrap)
		}
	}
	if c.timeout <= 0 {
		return nil, usagef("--timeout %s must be above 0", c.timeout)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("varve-cli"),
		kgo.SoftwareNameAndVersion("varve-cli", Version),
		kgo.RetryTimeout(c.timeout),
	}
	tc, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if tc != nil {
		opts = append(opts, kgo.DialTLSConfig(tc))
	}
	mechanism, err := c.sasl()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func (c *connection) tlsConfig() (*tls.Config, error) {
	if !c.tls && c.tlsCA == "" && c.tlsCert == "" && c.tlsKey == "" && c.tlsServerName == "" && !c.tlsInsecure {
		return nil, nil
	}
	tc := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.tlsServerName, InsecureSkipVerify: c.tlsInsecure}
	if c.tlsCA != "" {
		pem, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return nil, usagef("--tls-ca: %s", err)
		}
		tc.RootCAs = x509.NewCertPool()
		if !tc.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca %s holds no PEM certificate", c.tlsCA)
		}
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, usagef("--tls-cert and --tls-key belong together")
	}
	if c.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return nil, usagef("--tls-cert %s: %s", c.tlsCert, err)
		}
		tc.Certificates = []tls.Certificate{cert}
	}
	return tc, nil
}

func (c *connection) sasl() (sasl.Mechanism, error) {
	if c.saslMechanism == "" {
		if c.saslUser != "" || c.saslPasswordFile != "" {
			return nil, usagef("--sasl-user needs --sasl-mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		}
		return nil, nil
	}
	if c.saslUser == "" {
		return nil, usagef("--sasl-mechanism needs --sasl-user")
	}
	password, err := c.password()
	if err != nil {
		return nil, err
	}
	switch strings.ToUpper(c.saslMechanism) {
	case "PLAIN":
		return plain.Auth{User: c.saslUser, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.saslUser, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.saslUser, Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, usagef("--sasl-mechanism %q is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.saslMechanism)
}

func (c *connection) password() (string, error) {
	if c.saslPasswordFile == "" {
		if v, ok := os.LookupEnv(envSASLPassword); ok {
			return v, nil
		}
		return "", usagef("no password: give --sasl-password-file or set %s", envSASLPassword)
	}
	b, err := os.ReadFile(c.saslPasswordFile)
	if err != nil {
		return "", usagef("--sasl-password-file: %s", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// within bounds one exchange with the cluster by --timeout.
func (c *connection) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within --timeout %s", c.timeout))
}
