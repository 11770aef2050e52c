// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/etcd"
)

// startTimeout bounds opening and wiring; within it an etcd or bucket that is away is waited for.
const startTimeout = 60 * time.Second

// etcdPatience is how long an etcd may be silent before somebody is told.
const etcdPatience = 2 * time.Second

func newServeCommand(s *streams) *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run one node of a cluster",
		Long: "Runs one node against an etcd and a bucket: --node-id, --data, --bucket and --etcd are required, and --advertised-listeners where\n" +
			"--listeners names no address. It waits for an etcd that does not answer. Each flag is also a key of the file given with --config, and an environment\n" +
			"variable: --node-id is node-id: and VARVE_NODE_ID. A flag wins over the environment, the environment over the file.",
		Example: "varve serve --node-id 1 --etcd http://127.0.0.1:2379 --bucket minio://127.0.0.1:9000/logs?tls=false \\\n" +
			"  --data /var/lib/varve --listeners PLAINTEXT://:9092 --advertised-listeners PLAINTEXT://broker1.example:9092",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.fill(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if len(o.etcd) == 0 {
				return usagef("--etcd is required: the endpoints of an etcd, such as http://127.0.0.1:2379; `varve dev` runs one inside")
			}
			log := o.logger(s)
			return runNode(cmd.Context(), &o, log, func(n *node) { log.Info("ready", "bootstrap", n.bootstrap(), "cluster", n.meta.ClusterID()) })
		},
	}
	o.register(c.Flags())
	return c
}

// runNode is a whole node: it starts, runs until ctx ends, and is closed. A start that is refused leaves nothing.
func runNode(ctx context.Context, o *nodeOptions, log *slog.Logger, ready func(*node)) error {
	defer exitAtSecondSignal(ctx, log)()
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	n, err := prepareNode(start, o, log)
	defer n.made.remove() // when everything is closed
	if err != nil {
		return err
	}
	defer n.close()
	kv, stop, err := n.connectEtcd(start)
	if err != nil {
		return err
	}
	defer stop()
	defer closeLogged(log, "closing etcd", kv.Close)
	return n.serve(ctx, kv, ready)
}

// connectEtcd connects to the etcd that the options name, or starts one inside.
func (n *node) connectEtcd(ctx context.Context) (kv metadata.KV, stop func(), err error) {
	if len(n.options.etcd) == 0 || n.options.embedsEtcd() {
		return n.startEtcd(ctx)
	}
	n.etcd = n.options.etcd
	kv, err = n.options.openEtcd(ctx, n.log, nil)
	return kv, func() {}, err
}

// etcdConfig reads the flags that say how an etcd is reached.
func (o *nodeOptions) etcdConfig() (c etcd.Config, err error) {
	c.Endpoints = o.etcd
	if o.etcdUser != "" {
		user, password, ok := strings.Cut(o.etcdUser, ":")
		if !ok {
			return c, usagef("--etcd-user is not USER:PASSWORD")
		}
		c.Username, c.Password = user, password
	}
	if c.TLS, err = o.etcdTLS.config(); err != nil {
		return c, err
	}
	if err := c.Validate(); err != nil {
		return c, usagef("--etcd: %s", err)
	}
	return c, nil
}

// openEtcd connects to an etcd; inside serves what needs no connection, where the etcd is in this process.
func (o *nodeOptions) openEtcd(ctx context.Context, log *slog.Logger, inside etcd.KVServer) (metadata.KV, error) {
	c, err := o.etcdConfig()
	if err != nil {
		return nil, err
	}
	c.Logger, c.Inside = log.With("component", "etcd"), inside
	waiting := time.AfterFunc(etcdPatience, func() { log.Warn("etcd does not answer yet", "endpoints", o.etcd) })
	defer waiting.Stop()
	return etcd.Open(ctx, c)
}

// config reads the files; nil when none is given.
func (t tlsFiles) config() (*tls.Config, error) {
	if t == (tlsFiles{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, usagef("--etcd-tls-ca: %s", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--etcd-tls-ca %s holds no certificate in PEM form", t.ca)
		}
	}
	if t.cert == "" && t.key == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, usagef("--etcd-tls-cert and --etcd-tls-key: %s", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// serve opens a node, runs it until ctx ends and closes it.
func (n *node) serve(ctx context.Context, kv metadata.KV, ready func(*node)) error {
	start, cancel := context.WithTimeout(ctx, startTimeout)
	err := n.open(start, kv)
	cancel()
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w; gave up after %s", err, startTimeout)
		}
		return err
	}
	defer n.close()
	return n.run(ctx, ready)
}

// exitAtSecondSignal ends the process at once when another signal comes after the one that ended ctx, whatever it waits for.
func exitAtSecondSignal(ctx context.Context, log *slog.Logger) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		go func() {
			<-again
			log.Warn("second signal, exiting at once")
			os.Exit(exitFailed)
		}()
	})
}

func closeLogged(log *slog.Logger, doing string, closer func() error) {
	if err := closer(); err != nil {
		log.Warn(doing, "error", err)
	}
}
