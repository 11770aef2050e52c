// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// devDefaults are where dev differs from serve. Whatever is given by flag, environment or file wins. (The default of a list
// cannot be set through its flag: what is given later would be added to it.)
var devDefaults = map[string]string{
	"node-id":   "1",
	"listeners": "PLAINTEXT://127.0.0.1:9092",
	"log-level": "warn",
}

const devData = "./varve-data"

func newDevCommand(s *streams) *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process: a broker, an etcd and a bucket in a local directory",
		Long: "Runs one node with an etcd inside and a bucket in a directory below --data. It takes every flag of `varve serve` too:\n" +
			"--bucket minio://… gives one node on MinIO.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.prepareDev(cmd.Flags()); err != nil {
				return err
			}
			return runDev(cmd.Context(), s, &o)
		},
	}
	o.register(c.Flags())
	for name, value := range devDefaults {
		flag := c.Flags().Lookup(name)
		flag.DefValue = value
		_ = flag.Value.Set(value)
	}
	o.data, c.Flags().Lookup("data").DefValue = []string{devData}, devData
	return c
}

// prepareDev fills the options, with dev's defaults below everything else.
func (o *nodeOptions) prepareDev(f *pflag.FlagSet) error {
	if err := o.fill(f, os.LookupEnv); err != nil {
		return err
	}
	if len(o.data) == 0 {
		return usagef("--data is empty: name a directory")
	}
	root, err := filepath.Abs(o.data[0])
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	o.data[0] = root
	if o.bucket == "" {
		dir := filepath.Join(root, "bucket")
		o.makeBucket = dir
		o.bucket = "file://" + filepath.ToSlash(dir)
	}
	if inContainer() && !f.Changed("listeners") && !f.Changed("advertised-listeners") {
		// The mapped port is reached as localhost; other containers use the second listener by this one's host name.
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		o.listeners.listen = "PLAINTEXT://:9092,CONTAINERS://:29092"
		o.listeners.advertise = "PLAINTEXT://localhost:9092,CONTAINERS://" + host + ":29092"
		o.listeners.protocols = "CONTAINERS:PLAINTEXT"
	}
	o.small = true
	o.clampReplicas = true // one node holds every replica that there is
	o.set = append([]string{"auto.create.topics.enable=true"}, o.set...)
	return o.check()
}

// inContainer tells whether this is a container that was built to run dev: its image says so, since no sign that can be seen
// from inside is certain, and a wrong guess would open a port to the network.
func inContainer() bool { return os.Getenv("VARVE_CONTAINER") == "1" }

func runDev(ctx context.Context, s *streams, o *nodeOptions) error {
	return runNode(ctx, o, o.logger(s), func(n *node) {
		fmt.Fprintf(s.out, "varve is ready: bootstrap %s, http %s, data %s\n", n.bootstrap(), n.httpAddr(), o.data[0])
	})
}
