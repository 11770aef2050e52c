// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/reconcile"
)

// restoreOptions are what `varve restore` is called with.
type restoreOptions struct {
	node      nodeOptions // its cluster, etcd and bucket
	reconcile bool
	data      []string // each the directories of one node
	reports   []string
	without   []int32
	write     string
	apply     bool
	wait      time.Duration
}

func newRestoreCommand(s *streams) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore --reconcile",
		Short: "Bring a cluster back after its etcd was restored from a backup",
		Long: "After etcd was restored from a backup the nodes refuse to serve: etcd does not know what happened since. With all nodes stopped\n" +
			"this command compares etcd with the bucket and with the data directories of all nodes, and says what etcd has to be told: segments\n" +
			"uploaded since, who holds the newest log, leader epochs. With --apply it does that and raises the cluster's generation; then the\n" +
			"nodes start. It deletes no object. Committed group offsets stay as the backup has them.\n\n" +
			"Data directories on other machines are read there with --write-report, and the file is given with --report.",
		Example: "  varve restore --reconcile --etcd http://127.0.0.1:2379 --bucket s3://logs/varve --data /var/lib/varve --report node2.json --report node3.json",
		Args:    exactArgs(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.reconcile, "reconcile", false, "reconcile etcd with the bucket and the data directories")
	f.StringVar(&o.node.cluster, "cluster", "varve", "`NAME` of the cluster")
	o.node.registerEtcd(f)
	f.Lookup("etcd").Usage = "endpoints of the restored etcd, `URL[,URL]`; for embedded members of one that runs for the time being (docs/operations.md, Backups of etcd)"
	o.node.registerBucket(f)
	f.StringArrayVar(&o.data, "data", nil, "directories of one node, as for serve: `DIR[,DIR…]`; repeatable")
	f.StringVar(&o.node.walFailover, "wal-failover", "", "`DIR` of that node, as for serve; with one --data only")
	f.StringArrayVar(&o.reports, "report", nil, "`FILE` written with --write-report, for the data directories of another machine; repeatable")
	f.StringVar(&o.write, "write-report", "", "only read --data and write what it holds to `FILE`")
	addNumbers(f, &o.without, "without", "", "`NODE[,NODE]` whose data directories are lost for good")
	f.BoolVar(&o.apply, "apply", false, "do it; without this it is only shown")
	f.DurationVar(&o.wait, "wait", time.Minute, "how long registrations that the backup brought back may take to expire")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		nodes, err := o.nodes()
		if err != nil {
			return err
		}
		if o.write != "" {
			return writeReport(s, o.write, nodes)
		}
		return o.run(cmd.Context(), s, string(*out), nodes)
	}
	return cmd
}

func (o *restoreOptions) check() error {
	switch {
	case o.write != "" && (len(o.data) != 1 || o.apply || len(o.reports) > 0):
		return usagef("--write-report takes one --data, and nothing else")
	case o.write != "" && o.reconcile:
		return usagef("--write-report only reads --data, and reconciles nothing: leave --reconcile out")
	case o.write != "":
		return nil
	case !o.reconcile:
		return usagef("say --reconcile: bringing a cluster back from the bucket alone (--to, --as) is not built yet")
	case len(o.node.etcd) == 0:
		return usagef("--etcd is required: the endpoints of the restored etcd")
	case o.node.bucket == "":
		return usagef("--bucket is required")
	case o.node.walFailover != "" && len(o.data) != 1:
		return usagef("--wal-failover belongs to one node: give one --data, and the other nodes with --report")
	}
	return nil
}

// nodes reads the data directories and reports.
func (o *restoreOptions) nodes() (all []reconcile.Node, err error) {
	for _, dirs := range o.data {
		n, err := o.readNode(strings.Split(dirs, ","))
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	for _, name := range o.reports {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, usagef("--report: %s", err)
		}
		var r restoreReport
		if err := json.Unmarshal(raw, &r); err != nil || r.Format != restoreReportFormat {
			return nil, fmt.Errorf("--report %s is not a report of this version of varve (%w)", name, errors.Join(err, fmt.Errorf("format %d", r.Format)))
		}
		all = append(all, r.Node)
	}
	return all, nil
}

// readNode opens the hot logs of one node and tells what they hold.
func (o *restoreOptions) readNode(dirs []string) (n reconcile.Node, err error) {
	var dbs []*hotlog.DB
	defer func() {
		for _, db := range dbs {
			err = errors.Join(err, db.Close())
		}
	}()
	for i, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "hot")); err != nil {
			return n, fmt.Errorf("--data %s is no data directory of a node: %w", dir, err)
		}
		var options hotlog.Options
		if options.WALFailoverDir, err = o.node.failoverDir(i); err != nil {
			return n, err
		}
		db, err := hotlog.Open(filepath.Join(dir, "hot"), options)
		if errors.Is(err, hotlog.ErrLocked) {
			return n, fmt.Errorf("--data %s is in use: stop the node first (%w)", dir, err)
		}
		if err != nil {
			return n, fmt.Errorf("--data %s: %w", dir, err)
		}
		dbs = append(dbs, db)
	}
	id := dbs[0].Identity()
	n = reconcile.Node{ID: record.NodeID(id.Node), Store: broker.StoreID(dbs), Cluster: id.ClusterID, MaxPID: -1}
	if id.ClusterID == "" {
		return n, fmt.Errorf("--data %s belongs to no cluster yet: leave it out", dirs[0])
	}
	_, n.Revision = dbs[0].Witness()
	for _, db := range dbs {
		n.Gen = max(n.Gen, db.Generation())
		if err := readLogs(db, &n); err != nil {
			return n, err
		}
	}
	return n, nil
}

func readLogs(db *hotlog.DB, n *reconcile.Node) error {
	ids, err := db.Partitions()
	if err != nil {
		return err
	}
	for _, id := range ids {
		l, err := db.OpenLog(id, nil)
		if err != nil {
			return err
		}
		meta := l.Meta()
		n.Logs = append(n.Logs, reconcile.Log{ID: id, Start: l.Start(), End: l.AppendedEnd(), HighWatermark: meta.HighWatermark, CurrentEpoch: meta.CurrentEpoch, Epochs: l.Epochs()})
		if err := l.Producers(func(pid int64, _ []byte) error { n.MaxPID = max(n.MaxPID, pid); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// restoreReport is the file of --write-report.
type restoreReport struct {
	Format int            `json:"format"`
	Node   reconcile.Node `json:"node"`
}

const restoreReportFormat = 1

func writeReport(s *streams, name string, nodes []reconcile.Node) error {
	raw, err := json.Marshal(restoreReport{Format: restoreReportFormat, Node: nodes[0]})
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return writeLine(s.out, "node %d holds %d logs; written to %s", nodes[0].ID, len(nodes[0].Logs), name)
}

// run plans, shows and applies.
func (o *restoreOptions) run(ctx context.Context, s *streams, output string, nodes []reconcile.Node) error {
	store, err := o.openBucket(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	n := node{options: &o.node, store: store}
	if n.location, err = objstore.ParseURL(o.node.bucket); err != nil {
		return usagef("--bucket: %s", err)
	}
	inBucket, err := n.bucketClusterID(ctx)
	if err != nil {
		return err
	}
	if inBucket == "" {
		return fmt.Errorf("bucket %s knows no cluster %q: check --bucket and --cluster", n.location, o.node.cluster)
	}
	for _, node := range nodes {
		if node.Cluster != inBucket {
			return fmt.Errorf("the data directory of node %d belongs to cluster %s, the bucket names %s for %q", node.ID, node.Cluster, inBucket, o.node.cluster)
		}
	}
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	kv, err := o.node.openEtcd(ctx, log, nil)
	if err != nil {
		return err
	}
	defer kv.Close()
	meta, err := metadata.Open(ctx, kv, metadata.Options{ClusterName: o.node.cluster, BucketClusterID: inBucket, Logger: log, CompactEvery: -1})
	if err != nil {
		return err
	}
	state, err := o.freeze(ctx, s, meta)
	if err != nil {
		return err
	}
	bucket, err := reconcile.Survey(ctx, store, inBucket, state, nodes)
	if err != nil {
		return err
	}
	in := &reconcile.Input{State: state, Bucket: bucket, Nodes: nodes}
	for _, lost := range o.without {
		in.Without = append(in.Without, record.NodeID(lost))
	}
	plan, err := reconcile.Plan(in)
	if err != nil {
		return err
	}
	at, err := meta.Status(ctx)
	if err != nil {
		return err
	}
	seen := int64(0)
	for _, n := range nodes {
		seen = max(seen, n.Revision)
	}
	plan.Changes = append([]reconcile.Change{{What: "etcd", Why: fmt.Sprintf("is at revision %d, the nodes have seen up to %d", at.Revision, seen)}}, plan.Changes...)
	if o.apply {
		if err := meta.Reconcile(ctx, state, &plan.Reconciliation); err != nil {
			return fmt.Errorf("%w; what was done so far stays: run the command again", err)
		}
	}
	return o.show(s, output, plan, meta.Gen())
}

// freeze reads etcd once nobody is registered any more.
func (o *restoreOptions) freeze(ctx context.Context, s *streams, meta *metadata.Store) (*metadata.Frozen, error) {
	said := false
	for deadline := time.Now().Add(o.wait); ; {
		state, err := meta.Freeze(ctx)
		if err != nil || len(state.Registered) == 0 || time.Now().After(deadline) {
			return state, err
		}
		if !said {
			said = true
			fmt.Fprintf(s.err, "waiting for the registrations of nodes %v, which the backup brought back, to expire\n", state.Registered)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (o *restoreOptions) openBucket(ctx context.Context) (objstore.Store, error) {
	at, err := objstore.ParseURL(o.node.bucket)
	if err != nil {
		return nil, usagef("--bucket: %s", err)
	}
	driver, err := openStore(ctx, at, o.node.credentials)
	if err != nil {
		return nil, fmt.Errorf("--bucket: %w", err)
	}
	return objstore.Retry(objstore.Limit(driver, objstore.LimitOptions{}), objstore.RetryOptions{}), nil
}

// show prints the plan, or what was done.
func (o *restoreOptions) show(s *streams, output string, plan *reconcile.Result, gen int64) error {
	if o.apply {
		gen++
	}
	if output == string(outputJSON) {
		return writeJSON(s.out, map[string]any{"applied": o.apply, "generation": gen, "changes": plan.Changes, "warnings": plan.Warnings})
	}
	for _, c := range plan.Changes {
		if err := writeLine(s.out, "%s: %s", c.What, c.Why); err != nil {
			return err
		}
	}
	for _, w := range plan.Warnings {
		if err := writeLine(s.out, "WARNING %s", w); err != nil {
			return err
		}
	}
	if !o.apply {
		return writeLine(s.out, "nothing was changed: %d changes, %d warnings; run again with --apply", len(plan.Changes), len(plan.Warnings))
	}
	return writeLine(s.out, "reconciled: generation %d; start the nodes. Committed group offsets are those of the backup", gen)
}
