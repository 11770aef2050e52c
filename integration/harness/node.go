// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// NodeConfig is how a node is started. Zero values are replaced by a free port or a fresh directory.
type NodeConfig struct {
	ID     int
	Etcd   string   // endpoint; empty: `varve dev`, which has one inside
	Bucket string   // URL; empty: the directory of `varve dev`
	Data   string   // data directory
	Set    []string // key=value for --set
	Args   []string // further flags
	Env    []string // added to the environment
	// Peers gives the node an INTERNAL listener for the other nodes of its cluster, on a port of its own. PeersAt is the address
	// that it advertises there, such as that of a proxy; empty: its own.
	Peers   bool
	PeersAt string
	Rack    string
	Lease   time.Duration // of the registration; 0: the default
	Binary  string        // empty: this tree's
	// Wrap is put before the command, such as a tool that limits it.
	Wrap []string
}

// Node is one node of the product. It keeps data and ports over restarts.
type Node struct {
	*Process
	t      testing.TB
	Config NodeConfig
	Kafka  int // port
	HTTP   int // port
	Peers  int // port of the INTERNAL listener, 0 without one
	dir    string
}

// NewNode chooses ports and directories and starts nothing.
func NewNode(t testing.TB, c NodeConfig) *Node {
	t.Helper()
	n := &Node{t: t, Config: c, Kafka: Port(t), HTTP: Port(t), dir: TempDir(t, "node")}
	if n.Config.ID == 0 {
		n.Config.ID = 1
	}
	if n.Config.Data == "" {
		n.Config.Data = filepath.Join(n.dir, "data")
	}
	if n.Config.Peers {
		n.Peers = Port(t)
	}
	return n
}

// StartNode is NewNode and Start.
func StartNode(t testing.TB, c NodeConfig) *Node {
	t.Helper()
	n := NewNode(t, c)
	n.Start()
	return n
}

// Bootstrap is the address for clients.
func (n *Node) Bootstrap() string { return Loopback(n.Kafka) }

// Args is the command line after the program's name.
func (n *Node) Args() []string {
	c := &n.Config
	command := "serve"
	if c.Etcd == "" {
		command = "dev"
	}
	listeners := "PLAINTEXT://" + n.Bootstrap()
	if n.Peers != 0 {
		listeners += ",INTERNAL://" + Loopback(n.Peers)
	}
	args := []string{
		command, "--node-id", fmt.Sprint(c.ID), "--data", c.Data, "--http", Loopback(n.HTTP), "--log-level", "info",
		"--listeners", listeners,
	}
	if c.PeersAt != "" {
		args = append(args, "--advertised-listeners", "INTERNAL://"+c.PeersAt)
	}
	if c.Rack != "" {
		args = append(args, "--rack", c.Rack)
	}
	if c.Lease > 0 {
		args = append(args, "--set", fmt.Sprintf("varve.broker.lease.ms=%d", c.Lease.Milliseconds()))
	}
	if c.Etcd != "" {
		args = append(args, "--etcd", c.Etcd)
	}
	if c.Bucket != "" {
		args = append(args, "--bucket", c.Bucket)
	}
	for _, kv := range c.Set {
		args = append(args, "--set", kv)
	}
	return append(args, c.Args...)
}

// Command is the command that starts the node.
func (n *Node) Command() *exec.Cmd {
	line := append(append(append([]string{}, n.Config.Wrap...), n.binary()), n.Args()...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), n.Config.Env...)
	return cmd
}

func (n *Node) binary() string {
	if n.Config.Binary != "" {
		return n.Config.Binary
	}
	return Varve(n.t)
}

// Start starts the node and waits until /readyz says so.
func (n *Node) Start() {
	n.t.Helper()
	n.Launch()
	n.AwaitReady()
}

// Launch starts the node and does not wait.
func (n *Node) Launch() {
	n.t.Helper()
	n.Process = spawn(n.t, fmt.Sprintf("node %d", n.Config.ID), filepath.Join(n.dir, "log"), n.Command())
}

// AwaitReady waits until /readyz answers 200.
func (n *Node) AwaitReady() {
	n.t.Helper()
	n.await(n.Ready)
}

// Ready asks /readyz once.
func (n *Node) Ready() error { return get("http://"+Loopback(n.HTTP)+"/readyz", nil) }

// Crash kills the node with SIGKILL and starts it again.
func (n *Node) Crash() {
	n.t.Helper()
	n.Kill()
	n.Start()
}

// Refuse starts a node that cannot work and returns its exit code and what it printed.
func (n *Node) Refuse() (code int, output string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.binary(), n.Args()...)
	cmd.Env = append(os.Environ(), n.Config.Env...)
	endWithParent(cmd)
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		n.t.Fatalf("the node should not have started, and has not ended after %s:\n%s", commandTimeout, text)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// ClusterID asks the operations API for the cluster's id.
func (n *Node) ClusterID() string {
	n.t.Helper()
	var c struct{ ClusterID string }
	if err := get("http://"+Loopback(n.HTTP)+"/v1/cluster", func(r io.Reader) error { return json.NewDecoder(r).Decode(&c) }); err != nil {
		n.t.Fatal(err)
	}
	return c.ClusterID
}

// Metrics reads /metrics: the value of each series, by its name with labels as printed.
func (n *Node) Metrics() map[string]float64 {
	n.t.Helper()
	return metricsOf(n.t, Loopback(n.HTTP))
}

func metricsOf(t testing.TB, host string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	err := get("http://"+host+"/metrics", func(r io.Reader) error {
		text, err := io.ReadAll(r)
		for line := range strings.Lines(string(text)) {
			i := strings.LastIndexByte(strings.TrimSpace(line), ' ')
			var v float64
			if i < 0 || line[0] == '#' {
				continue
			}
			if _, err := fmt.Sscan(line[i+1:], &v); err == nil {
				out[line[:i]] = v
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Sum adds the series of a metric whose labels contain every given text.
func Sum(metrics map[string]float64, name string, labels ...string) (total float64) {
next:
	for series, v := range metrics {
		metric, rest, _ := strings.Cut(series, "{")
		if metric != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		total += v
	}
	return total
}

// Segments is what the operations API tells of a partition.
type Segments struct {
	LogStart    int64     `json:"logStartOffset"`
	TieredEnd   int64     `json:"tieredEndOffset"`
	TieredBytes int64     `json:"tieredBytes"`
	Segments    []Segment `json:"segments"`
	Next        *int64    `json:"next"`
}

// Segment is one object in the bucket.
type Segment struct {
	Base    int64  `json:"baseOffset"`
	End     int64  `json:"endOffset"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	Object  string `json:"object"`
}

// Segments lists every segment of a partition.
func (n *Node) Segments(topic string, partition int32) (Segments, error) {
	var all Segments
	from := int64(0)
	for {
		var page Segments
		url := fmt.Sprintf("http://%s/v1/topics/%s/partitions/%d/segments?from=%d", Loopback(n.HTTP), topic, partition, from)
		err := get(url, func(r io.Reader) error { return json.NewDecoder(r).Decode(&page) })
		if err != nil {
			return all, err
		}
		page.Segments = append(all.Segments, page.Segments...)
		all = page
		if page.Next == nil {
			return all, nil
		}
		from = *page.Next
	}
}

// Run runs a client command of the product against the node.
func (n *Node) Run(stdin io.Reader, args ...string) (stdout string, err error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.binary(), args...)
	cmd.Env = append(os.Environ(), "VARVE_BOOTSTRAP="+n.Bootstrap(), "VARVE_HTTP="+Loopback(n.HTTP))
	cmd.Stdin = stdin
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	endWithParent(cmd)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("varve %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// Must is Run that fails the test.
func (n *Node) Must(args ...string) string {
	n.t.Helper()
	out, err := n.Run(nil, args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}
