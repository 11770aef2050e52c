// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
)

// refusalTime bounds a start that cannot work. It takes a second or two; a busy machine takes more.
const refusalTime = 30 * time.Second

// refusal is a start that cannot work.
type refusal struct {
	name   string
	config harness.NodeConfig
	node   func(*harness.Node) // changes the node before the start
	args   []string            // further flags, the last word on what they set
	slow   bool                // it first makes sure, for up to a minute
	says   []string            // what the one line must contain: what is wrong, and what to do
}

// check starts the node and demands that it ends soon, with a code other than 0 and one line (A5).
func (r *refusal) check(t *testing.T) {
	t.Helper()
	r.config.Args = append(r.config.Args, append([]string{"--log-level", "warn"}, r.args...)...)
	n := harness.NewNode(t, r.config)
	if r.node != nil {
		r.node(n)
	}
	begin := time.Now()
	code, output := n.Refuse()
	took := time.Since(begin)
	line := strings.TrimSuffix(output, "\n")
	if r.slow { // what it waits for is logged before
		line = line[strings.LastIndex(line, "\n")+1:]
	}
	t.Logf("code %d after %s: %s", code, took.Round(time.Millisecond), line)
	if code == 0 {
		t.Error("the exit code is 0")
	}
	if took > refusalTime && !r.slow {
		t.Errorf("it took %s", took)
	}
	if line == "" || strings.Contains(line, "\n") {
		t.Errorf("not one line but:\n%s", output)
	}
	for _, s := range r.says {
		if !strings.Contains(line, s) {
			t.Errorf("the line does not say %q", s)
		}
	}
}

func checkRefusals(t *testing.T, rows []refusal) {
	t.Helper()
	for i := range rows {
		t.Run(rows[i].name, func(t *testing.T) { rows[i].check(t) })
	}
}

// TestBadFlags: what can be seen on the command line and in the file.
func TestBadFlags(t *testing.T) {
	fine := harness.NodeConfig{Etcd: "http://127.0.0.1:1", Bucket: "file://" + harness.TempDir(t, "bucket")}
	file := filepath.Join(harness.TempDir(t, "config"), "varve.yaml")
	if err := os.WriteFile(file, []byte("node-id: 1\nlisteners-typo: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(bucket string) harness.NodeConfig {
		c := fine
		c.Bucket = bucket
		return c
	}
	checkRefusals(t, []refusal{
		{name: "unknown flag", config: fine, args: []string{"--nod-id", "1"}, says: []string{"--nod-id"}},
		{name: "unknown key of the file", config: fine, args: []string{"--config", file}, says: []string{file, "listeners-typo"}},
		{name: "no such file", config: fine, args: []string{"--config", file + ".none"}, says: []string{file + ".none"}},
		{name: "unknown config", config: fine, args: []string{"--set", "no.such.config=1"}, says: []string{"no.such.config"}},
		{name: "value out of range", config: fine, args: []string{"--set", "varve.segment.max.ms=1"}, says: []string{"varve.segment.max.ms", "1", "at least 100"}},
		{name: "value of another type", config: fine, args: []string{"--set", "auto.create.topics.enable=maybe"}, says: []string{"auto.create.topics.enable", "maybe", "true"}},
		{name: "set without value", config: fine, args: []string{"--set", "log.retention.ms"}, says: []string{"log.retention.ms", "KEY=VALUE"}},
		{name: "negative node id", config: fine, args: []string{"--node-id", "-1"}, says: []string{"--node-id"}},
		{name: "unknown role", config: fine, args: []string{"--roles", "king"}, says: []string{"king", "broker and compactor"}},
		{name: "log level", config: fine, args: []string{"--log-level", "loud"}, says: []string{"loud", "warn"}},
		{name: "wildcard advertised", config: fine, args: []string{"--listeners", "PLAINTEXT://:19092"}, says: []string{"wildcard", "--advertised-listeners PLAINTEXT://HOST:19092"}},
		{name: "0.0.0.0 advertised", config: fine, args: []string{"--listeners", "PLAINTEXT://0.0.0.0:19092"}, says: []string{"0.0.0.0", "--advertised-listeners"}},
		{name: "wildcard given as advertised", config: fine, args: []string{"--advertised-listeners", "PLAINTEXT://0.0.0.0:19092"}, says: []string{"0.0.0.0", "--advertised-listeners"}},
		{name: "bucket of unknown scheme", config: with("gopher://bucket"), says: []string{"--bucket", "gopher", "s3"}},
		{name: "bucket without scheme", config: with("bucket/prefix"), says: []string{"--bucket", "bucket/prefix", "s3://"}},
		{name: "bucket with a password", config: with("minio://user:secret@127.0.0.1:9000/bucket"), says: []string{"--bucket", "--bucket-credentials"}},
		{name: "bucket with an unknown parameter", config: with("s3://bucket/?regoin=x"), says: []string{"--bucket", "regoin", "region"}},
		{name: "etcd without scheme", config: fine, args: []string{"--etcd", "ftp://127.0.0.1:2379"}, says: []string{"--etcd", "ftp"}},
	})
}

// TestBadBuckets: what the store answers at the start.
func TestBadBuckets(t *testing.T) {
	etcd := harness.StartEtcd(t)
	s3, minio := s3Bucket(t, "logs"), minioBucket(t, "logs")
	nobody := harness.Loopback(harness.Port(t))
	wrong := []string{"AWS_ACCESS_KEY_ID=" + s3.server.AccessKey, "AWS_SECRET_ACCESS_KEY=wrong", "AWS_EC2_METADATA_DISABLED=true",
		"MINIO_ACCESS_KEY=" + s3.server.AccessKey, "MINIO_SECRET_KEY=wrong"}
	at := func(url string, env []string) harness.NodeConfig {
		return harness.NodeConfig{Etcd: etcd.URL(), Bucket: url, Env: env}
	}
	checkRefusals(t, []refusal{
		{name: "s3 wrong credentials", config: at(s3.url, wrong), says: []string{"credentials", "AWS_SECRET_ACCESS_KEY"}},
		{name: "minio wrong credentials", config: at(minio.url, wrong), says: []string{"credentials", "MINIO_SECRET_KEY"}},
		{name: "s3 missing bucket", config: at(strings.Replace(s3.url, s3.server.Bucket, "no-such-bucket", 1), s3.env), says: []string{"no-such-bucket", "create it"}},
		{name: "minio missing bucket", config: at(strings.Replace(minio.url, minio.server.Bucket, "no-such-bucket", 1), minio.env), says: []string{"no-such-bucket", "create it"}},
		{name: "s3 unreachable", config: at(strings.Replace(s3.url, s3.server.Host, nobody, 1), s3.env), says: []string{nobody, "reach"}},
		{name: "minio unreachable", config: at(strings.Replace(minio.url, minio.server.Host, nobody, 1), minio.env), says: []string{nobody, "reach"}},
		{name: "minio over https", config: at(strings.Replace(minio.url, "?tls=false", "", 1), minio.env), says: []string{minio.server.Host, "tls=false"}},
		{name: "no such directory", config: at("file:///no/such/varve/directory", nil), says: []string{"/no/such/varve/directory", "create it"}},
	})
}

// world is an etcd, a bucket and a data directory that belong together.
type world struct {
	etcd         *harness.Etcd
	bucket, data string // directories
	id           string // of the cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{etcd: harness.StartEtcd(t), bucket: harness.TempDir(t, "bucket"), data: filepath.Join(harness.TempDir(t, "data"), "data")}
	n := harness.StartNode(t, w.config())
	w.id = n.ClusterID()
	if code := n.Terminate(); code != 0 {
		t.Fatalf("the node ended with code %d", code)
	}
	return w
}

func (w *world) config() harness.NodeConfig {
	return harness.NodeConfig{Etcd: w.etcd.URL(), Bucket: "file://" + w.bucket, Data: w.data}
}

// visit starts a node and ends it.
func (w *world) visit(t *testing.T) {
	t.Helper()
	if code := harness.StartNode(t, w.config()).Terminate(); code != 0 {
		t.Fatalf("the node ended with code %d", code)
	}
}

// TestIdentity: every row of the identity table, by mixing the parts of two clusters.
func TestIdentity(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	if a.id == b.id || len(a.id) != 22 {
		t.Fatalf("cluster ids %q and %q", a.id, b.id)
	}
	empty := harness.StartEtcd(t)
	mix := func(etcd *harness.Etcd, bucket, data string) harness.NodeConfig {
		c := harness.NodeConfig{Etcd: etcd.URL(), Bucket: "file://" + bucket, Data: data}
		if bucket == "" {
			c.Bucket += harness.TempDir(t, "bucket")
		}
		return c
	}
	otherNode := mix(a.etcd, a.bucket, a.data)
	otherNode.ID = 2
	checkRefusals(t, []refusal{
		{name: "etcd empty, bucket knows the cluster", config: mix(empty, a.bucket, ""), says: []string{"etcd is empty", a.id, "varve restore"}},
		{name: "etcd empty, bucket and data agree", config: mix(empty, a.bucket, a.data), says: []string{"etcd is empty", a.id, "varve restore"}},
		{name: "etcd knows the cluster, bucket does not", config: mix(a.etcd, "", ""), says: []string{"wrong or emptied bucket", a.id, "--bucket"}},
		{name: "etcd and data agree, bucket does not", config: mix(a.etcd, "", a.data), says: []string{"wrong or emptied bucket", a.id}},
		{name: "bucket of another cluster", config: mix(a.etcd, b.bucket, ""), says: []string{a.id, b.id, "--bucket"}},
		{name: "data directory of another cluster", config: mix(a.etcd, a.bucket, b.data), says: []string{a.id, b.id, "--data"}},
		{name: "data directory, all else empty", config: mix(empty, "", a.data), says: []string{a.id, "--data"}},
		{name: "data directory of another node", config: otherNode, says: []string{"node 1", "--node-id 2"}},
		{name: "another cluster name in the same etcd", config: mix(a.etcd, a.bucket, a.data), args: []string{"--cluster", "other"}, says: []string{a.id}},
	})
	t.Run("both agree", a.visit)
	t.Run("nothing was minted by a refusal", func(t *testing.T) {
		c := mix(empty, "", "")
		if code := harness.StartNode(t, c).Terminate(); code != 0 {
			t.Errorf("code %d", code)
		}
	})
}

// TestOldCopy: a data directory put back from a copy lacks what was acknowledged since.
func TestOldCopy(t *testing.T) {
	w := newWorld(t)
	copied := filepath.Join(harness.TempDir(t, "copy"), "data")
	harness.CopyDir(t, copied, w.data)
	w.visit(t)
	config := w.config()
	config.Data = copied
	says := []string{"--data " + copied, "older copy", "move it aside"}
	checkRefusals(t, []refusal{{name: "older copy", config: config, says: says}})
	for range 3 { // whoever starts what ended does not get it through by that
		checkRefusals(t, []refusal{{name: "older copy again", config: config, says: says}})
	}
	t.Run("the original starts", w.visit)
}

// TestTaken: what another process has.
func TestTaken(t *testing.T) {
	w := newWorld(t)
	running := harness.StartNode(t, w.config())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	other := w.config()
	other.Data, other.ID = filepath.Join(harness.TempDir(t, "data"), "data"), 2
	checkRefusals(t, []refusal{
		{name: "data directory in use", config: w.config(), says: []string{"--data " + w.data, "in use", "stop it"}},
		{name: "Kafka port in use", config: other, node: func(n *harness.Node) { n.Kafka = port }, says: []string{harness.Loopback(port), "in use", "another port"}},
		{name: "HTTP port in use", config: other, node: func(n *harness.Node) { n.HTTP = port }, says: []string{"--http", harness.Loopback(port), "in use"}},
	})
	if err := running.Ready(); err != nil {
		t.Errorf("the running node suffers: %v", err)
	}
}
