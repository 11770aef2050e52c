// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/tiering/objstore"
)

// nodeOptions are what `varve serve` and `varve dev` are started with. Each has a flag, a YAML key and an environment variable
// of the same name: --node-id, node-id:, VARVE_NODE_ID. A flag wins over the environment, the environment over the file.
type nodeOptions struct {
	configFile string

	nodeID      int32
	cluster     string
	roles       []string
	etcd        []string
	etcdUser    string
	etcdTLS     tlsFiles
	etcdPeers   []string
	etcdListen  string
	etcdData    string
	bucket      string
	credentials string
	data        []string
	walFailover string
	listeners   listenerOptions
	peerTLS     tlsFiles
	rack        string
	http        string
	httpToken   string
	set         []string
	logLevel    string
	level       *slog.LevelVar // of the logger, which may change while the node runs
	logFormat   string
	drain       time.Duration

	clampReplicas bool   // dev: a replication factor above the number of nodes is taken for that number
	makeBucket    string // dev: the directory of the bucket
	small         bool   // dev: set aside little space on the disk
}

type tlsFiles struct{ ca, cert, key string }

// failoverDir is the failover directory of the data directory with an index, "" for none. The hot log writes it down, so it must mean the
// same wherever the process is started.
func (o *nodeOptions) failoverDir(index int) (string, error) {
	if o.walFailover == "" {
		return "", nil
	}
	dir, err := filepath.Abs(o.walFailover)
	if err != nil {
		return "", fmt.Errorf("--wal-failover %s: %w", o.walFailover, err)
	}
	return filepath.Join(dir, fmt.Sprintf("wal-%d", index)), nil
}

// register declares the flags. Defaults are those of serve; dev changes some.
func (o *nodeOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, "config", "", "YAML `FILE` with the same names as the flags")
	f.Int32Var(&o.nodeID, "node-id", -1, "Kafka's node.id; each node of a cluster has its own")
	f.StringVar(&o.cluster, "cluster", "varve", "`NAME` of the cluster")
	f.StringSliceVar(&o.roles, "roles", []string{"broker", "compactor"}, "what this node does: broker, compactor (does nothing yet: compaction is not built)")
	o.registerEtcd(f)
	o.registerBucket(f)
	f.StringSliceVar(&o.etcdPeers, "etcd-peers", nil, "with --etcd embed: the members by node id, the same on each, `NODE=URL,…`; none: this is the only one")
	f.StringVar(&o.etcdListen, "etcd-listen", "", "with --etcd embed: `URL` at which nodes that are no members reach this one; default loopback, for this node alone")
	f.StringVar(&o.etcdData, "etcd-data", "", "with --etcd embed: `DIR` of the member, best on a disk of its own; default etcd below the first --data")
	f.StringSliceVar(&o.data, "data", nil, "directories of the hot log, one per disk: `DIR[,DIR…]`")
	f.StringVar(&o.walFailover, "wal-failover", "", "`DIR` on another disk, to which the write-ahead log moves while the first stalls")
	f.StringVar(&o.listeners.listen, "listeners", "PLAINTEXT://:9092,INTERNAL://:9094", "where to listen, as Kafka's listeners")
	f.StringVar(&o.listeners.advertise, "advertised-listeners", "", "what clients are told, as Kafka's advertised.listeners")
	f.StringVar(&o.listeners.protocols, "listener-security-protocol-map", "", "as Kafka's listener.security.protocol.map")
	f.StringVar(&o.listeners.interBroker, "inter-broker-listener-name", "INTERNAL", "the listener that nodes use among themselves")
	f.StringVar(&o.peerTLS.cert, "inter-broker-tls-cert", "", "`FILE` with this node's certificate: nodes then use mutual TLS among themselves")
	f.StringVar(&o.peerTLS.key, "inter-broker-tls-key", "", "`FILE` with its key")
	f.StringVar(&o.peerTLS.ca, "inter-broker-tls-ca", "", "`FILE` with the certificate authority of the nodes")
	f.StringVar(&o.rack, "rack", "", "Kafka's broker.rack")
	f.StringVar(&o.http, "http", "127.0.0.1:9644", "`HOST:PORT` of health, metrics and operations API, empty for none")
	f.StringVar(&o.httpToken, "http-token-file", "", "`FILE` with the token that changes of state and pprof demand")
	f.StringArrayVar(&o.set, "set", nil, "`KEY=VALUE` of a Kafka broker config; repeatable")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "how long SIGTERM may take to hand over and finish requests")
}

// registerEtcd declares how an etcd is reached.
func (o *nodeOptions) registerEtcd(f *pflag.FlagSet) {
	f.StringSliceVar(&o.etcd, "etcd", nil, "etcd endpoints, `URL[,URL]`; or embed: this node is a member itself")
	f.StringVar(&o.etcdUser, "etcd-user", "", "`USER:PASSWORD` for etcd")
	f.StringVar(&o.etcdTLS.ca, "etcd-tls-ca", "", "`FILE` with the certificate authority of etcd")
	f.StringVar(&o.etcdTLS.cert, "etcd-tls-cert", "", "`FILE` with this node's certificate for etcd")
	f.StringVar(&o.etcdTLS.key, "etcd-tls-key", "", "`FILE` with this node's key for etcd")
}

// registerBucket declares how the bucket is reached.
func (o *nodeOptions) registerBucket(f *pflag.FlagSet) {
	f.StringVar(&o.bucket, "bucket", "", "`URL` of the bucket: s3://bucket/prefix, minio://host:port/bucket/prefix, file:///dir; for tests mem://, gone with the process")
	f.StringVar(&o.credentials, "bucket-credentials", "", "`FILE` with the bucket's credentials (minio://)")
}

// fill gives every flag that was not on the command line its value from the environment, else from the file.
func (o *nodeOptions) fill(f *pflag.FlagSet, environ func(string) (string, bool)) error {
	if !f.Changed("config") {
		if v, ok := environ("VARVE_CONFIG"); ok {
			o.configFile = v
		}
	}
	fromFile, err := readConfigFile(o.configFile)
	if err != nil {
		return err
	}
	for key := range fromFile {
		if f.Lookup(key) == nil || key == "config" || key == "help" {
			return usagef("%s: unknown key %q; the keys are the flags' names, see --help", o.configFile, key)
		}
	}
	var failed error
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "config" || flag.Name == "help" || failed != nil {
			return
		}
		name := "VARVE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		values, where := fromFile[flag.Name], o.configFile+": "+flag.Name
		if v, ok := environ(name); ok {
			values, where = []string{v}, name
		}
		for _, v := range values {
			if err := f.Set(flag.Name, v); err != nil {
				failed = usagef("%s: %s", where, err)
				return
			}
		}
	})
	return failed
}

// readConfigFile reads a YAML mapping of scalars, lists and, for set, a mapping of config names to values.
func readConfigFile(name string) (map[string][]string, error) {
	if name == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("--config: %s", err)
	}
	var doc map[string]yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, usagef("%s: %s", name, err)
	}
	out := make(map[string][]string, len(doc))
	for key, node := range doc {
		switch node.Kind {
		case yaml.ScalarNode:
			out[key] = []string{node.Value}
		case yaml.SequenceNode:
			for _, item := range node.Content {
				out[key] = append(out[key], item.Value)
			}
		case yaml.MappingNode:
			if key != "set" {
				return nil, usagef("%s: %s takes a value or a list", name, key)
			}
			for i := 0; i+1 < len(node.Content); i += 2 {
				out[key] = append(out[key], node.Content[i].Value+"="+node.Content[i+1].Value)
			}
			sort.Strings(out[key])
		}
	}
	return out, nil
}

// brokerConfigs parses the --set values and adds what other flags say about the same configs.
func (o *nodeOptions) brokerConfigs() (map[string]string, error) {
	configs := map[string]string{
		"node.id": strconv.Itoa(int(o.nodeID)), "log.dirs": strings.Join(o.data, ","), "listeners": o.listeners.listen,
		"inter.broker.listener.name": o.listeners.interBroker,
	}
	if o.listeners.advertise != "" {
		configs["advertised.listeners"] = o.listeners.advertise
	}
	if o.listeners.protocols != "" {
		configs["listener.security.protocol.map"] = o.listeners.protocols
	}
	if o.rack != "" {
		configs["broker.rack"] = o.rack
	}
	for _, kv := range o.set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			return nil, usagef("--set %q is not KEY=VALUE", kv)
		}
		configs[key] = value
	}
	return configs, nil
}

// check finds what is wrong before anything is opened.
func (o *nodeOptions) check() error {
	switch {
	case o.nodeID < 0:
		return usagef("--node-id is required: a number from 0 up that no other node of the cluster has")
	case o.cluster == "":
		return usagef("--cluster is empty: give the cluster a name")
	case len(o.data) == 0:
		return usagef("--data is required: the directory of this node's hot log")
	case o.bucket == "":
		return usagef("--bucket is required: s3://bucket/prefix, minio://host:port/bucket/prefix or file:///dir")
	}
	for _, role := range o.roles {
		if role != "broker" && role != "compactor" {
			return usagef("--roles: unknown role %q; there is broker and compactor", role)
		}
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return usagef("--log-format %q: use text or json", o.logFormat)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return usagef("--log-level %q: use debug, info, warn or error", o.logLevel)
	}
	if o.drain <= 0 {
		return usagef("--drain-timeout %s: must be above 0", o.drain)
	}
	return o.checkValues()
}

// checkValues reads what later steps use, so that a mistake is told at once and not after a minute of waiting for an etcd.
func (o *nodeOptions) checkValues() error {
	static, err := o.brokerConfigs()
	if err != nil {
		return err
	}
	if _, err := config.ResolveBroker(static, nil, nil); err != nil {
		return usagef("--set: %s", err)
	}
	if _, err := objstore.ParseURL(o.bucket); err != nil {
		return usagef("--bucket: %s", err)
	}
	if _, err := o.members(); err != nil {
		return err
	}
	if len(o.etcd) > 0 && !o.embedsEtcd() {
		if _, err := o.etcdConfig(); err != nil {
			return err
		}
	} else if u, err := url.Parse(o.etcdListen); o.etcdListen != "" && (err != nil || u.Scheme != "http" || u.Port() == "") {
		return usagef("--etcd-listen %q is not http://HOST:PORT", o.etcdListen)
	}
	if err := checkHTTP(o.http); err != nil {
		return err
	}
	if err := (ops.Config{TokenFile: o.httpToken}).Validate(); err != nil {
		return usagef("%s", err)
	}
	if _, err := openPeerTLS(o.peerTLS); err != nil {
		return err
	}
	_, err = parseListeners(o.listeners)
	return err
}

// checkHTTP refuses what is no address to listen at. The commands for operators take a list under the same name.
func checkHTTP(address string) error {
	if address == "" {
		return nil
	}
	if strings.Contains(address, ",") {
		return usagef("--http %q names several addresses: a node takes one HOST:PORT (%s in the environment is a node's --http as well as the list of "+
			"nodes that `varve node list` and others ask: unset it here, or give --http)", address, envHTTP)
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usagef("--http %q is not HOST:PORT, such as 127.0.0.1:%s", address, defaultHTTPPort)
	}
	return nil
}

func (o *nodeOptions) logger(s *streams) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(o.logLevel)) // check has read it
	o.level = new(slog.LevelVar)
	o.level.Set(level)
	options := &slog.HandlerOptions{Level: o.level}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(s.err, options))
	}
	return slog.New(slog.NewTextHandler(s.err, options))
}
