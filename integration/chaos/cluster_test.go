// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
	"github.com/varve/varve/internal/testenv"
)

// cluster is three nodes, an etcd and an S3 server, with a proxy in every link.
type cluster struct {
	t     testing.TB
	net   *network
	etcd  []*harness.Etcd
	node  map[place]*harness.Node
	small place // the node whose disk is small enough to be filled; 0: no such disk can be made here
	down  map[place]bool
}

func startCluster(t testing.TB, members int) *cluster {
	t.Helper()
	c := &cluster{t: t, net: newNetwork(), node: map[place]*harness.Node{}, down: map[place]bool{}}
	t.Cleanup(c.net.close)
	s3 := testenv.VersityGW(t)
	c.etcd = harness.StartEtcds(t, members)
	for n := place(1); n <= nodes; n++ {
		config := harness.NodeConfig{ID: int(n), Peers: true, Lease: lease, Rack: fmt.Sprint("rack-", n), Set: []string{
			"varve.segment.max.ms=2000", "varve.gc.grace.ms=20000",
		}}
		var urls []string
		for i, e := range c.etcd {
			urls = append(urls, "http://"+c.proxy(n, etcd+place(i), strings.TrimPrefix(e.URL(), "http://")))
		}
		config.Etcd = strings.Join(urls, ",")
		config.Bucket = "minio://" + c.proxy(n, store, s3.Host) + "/" + s3.Bucket + "/chaos?tls=false"
		config.Env = []string{"MINIO_ACCESS_KEY=" + s3.AccessKey, "MINIO_SECRET_KEY=" + s3.SecretKey}
		if n == nodes {
			if dir, why := smallDisk(t); why == nil {
				config.Data, c.small = filepath.Join(dir, "data"), n
			} else {
				t.Logf("no disk will be full: %v", why)
			}
		}
		node := harness.NewNode(t, config)
		node.Config.PeersAt = c.proxy(0, n, harness.Loopback(node.Peers))
		c.node[n] = node
		node.Launch()
	}
	for n := place(1); n <= nodes; n++ {
		c.node[n].AwaitReady()
	}
	return c
}

func (c *cluster) proxy(from, to place, target string) string {
	c.t.Helper()
	address, err := c.net.proxy(from, to, target)
	if err != nil {
		c.t.Fatal(err)
	}
	return address
}

func (c *cluster) bootstrap() (all []string) {
	for n := place(1); n <= nodes; n++ {
		all = append(all, c.node[n].Bootstrap())
	}
	return all
}

// smallDisk mounts a small filesystem, which takes root.
func smallDisk(t testing.TB) (dir string, err error) {
	dir = harness.TempDir(t, "disk")
	if text, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", smallDiskBytes), "varve-chaos", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mounting a tmpfs needs root on Linux: %w: %s", err, text)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir, nil
}

// kill ends a node as a crash does.
func (c *cluster) kill(n place) {
	c.down[n] = true
	c.node[n].Kill()
}

func (c *cluster) launch(n place) {
	c.node[n].Launch()
	delete(c.down, n)
}

// awaitReady waits for /readyz of the nodes that should run.
func (c *cluster) awaitReady(atMost time.Duration) error {
	deadline := time.Now().Add(atMost)
	for {
		var last error
		for n := place(1); n <= nodes; n++ {
			if !c.down[n] && last == nil {
				if last = c.node[n].Ready(); last != nil {
					last = fmt.Errorf("node %d: %w", n, last)
				}
			}
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// ended tells which nodes ended by themselves, and starts them again.
func (c *cluster) ended() (all []place) {
	for n := place(1); n <= nodes; n++ {
		if !c.down[n] && !c.node[n].Running() {
			all = append(all, n)
			c.launch(n)
		}
	}
	return all
}

// others are the nodes beside n.
func others(n place) (all []place) {
	for m := place(1); m <= nodes; m++ {
		if m != n {
			all = append(all, m)
		}
	}
	return all
}

// keep copies the logs of the nodes to the directory that VARVE_CHAOS_KEEP names.
func (c *cluster) keep(name string) {
	dir := os.Getenv("VARVE_CHAOS_KEEP")
	if dir == "" {
		return
	}
	dir = filepath.Join(dir, url.PathEscape(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Log(err)
		return
	}
	for n, node := range c.node {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("node-%d.log", n)), []byte(node.Log()), 0o600); err != nil {
			c.t.Log(err)
		}
	}
	c.t.Logf("the logs of the nodes are in %s", dir)
}
