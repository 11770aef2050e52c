// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// Workloads of bench, in the order in which they run.
const (
	benchProduce = "produce"
	benchConsume = "consume"
	benchE2E     = "e2e"
)

type benchFlags struct {
	topic       string
	partitions  int32
	replication int16
	duration    time.Duration
	warmup      time.Duration
	recordBytes int
	clients     int
	rate        int
	keep        bool
	produce     produceFlags // batch, linger, compression and acks
}

// measured is the outcome of one workload.
type measured struct {
	Workload  string             `json:"workload"`
	Loop      string             `json:"loop"`
	Records   int64              `json:"records"`
	Bytes     int64              `json:"bytes"`
	Seconds   float64            `json:"seconds"`
	PerSecond float64            `json:"recordsPerSecond"`
	MiBPerSec float64            `json:"mibPerSecond"`
	LatencyMs map[string]latency `json:"latencyMillis,omitempty"`
	Note      string             `json:"note,omitempty"`
}

type latency struct {
	P50, P99, P999, Max float64
}

func newBenchCommand(s *streams) *cobra.Command {
	b := benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench [produce|consume|e2e]...",
		Short: "Measure a cluster from outside",
		Long: "produce: clients write as fast as they are answered, or at --rate.\n" +
			"consume: reads the topic once from its beginning.\n" +
			"e2e: writes at --rate (default 1000/s) and reads at the same time; latency counts from when a record was due, so that a\n" +
			"stalled broker cannot hide its stall.\n" +
			"Without arguments all three run. The driver shares this machine's cores: compare ratios, not absolute figures.",
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.StringVar(&b.topic, "topic", "", "use this topic (default: one that is made for the run and deleted afterwards)")
	f.Int32Var(&b.partitions, "partitions", 4, "partitions of the topic that is made")
	f.Int16Var(&b.replication, "replication-factor", -1, "its replication factor")
	f.DurationVar(&b.duration, "duration", 10*time.Second, "measure this long")
	f.DurationVar(&b.warmup, "warmup", 2*time.Second, "run this long before measuring")
	f.IntVar(&b.recordBytes, "record-bytes", 1024, "size of a value; random bytes, which do not compress")
	f.IntVar(&b.clients, "clients", 2, "producing clients, a connection each")
	f.IntVar(&b.rate, "rate", 0, "records per second of all clients together (0: closed loop; e2e: 1000)")
	f.BoolVar(&b.keep, "keep", false, "do not delete the topic that was made")
	f.Int32Var(&b.produce.batchBytes, "batch-bytes", 256<<10, "largest batch")
	f.DurationVar(&b.produce.linger, "linger", 0, "wait this long to fill a batch")
	f.StringVarP(&b.produce.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	f.StringVar(&b.produce.acks, "acks", "all", "all or 1")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		workloads, err := b.check(args)
		if err != nil {
			return err
		}
		run := &benchRun{flags: &b, conn: conn, notes: s.err}
		results, err := run.all(cmd.Context(), workloads)
		if len(results) > 0 || err == nil {
			err = errors.Join(err, out.show(s.out, results, benchTable(results)))
		}
		return err
	}
	return cmd
}

func (b *benchFlags) check(args []string) ([]string, error) {
	all := []string{benchProduce, benchConsume, benchE2E}
	for _, a := range args {
		if !slices.Contains(all, a) {
			return nil, usagef("no workload %q; there is produce, consume and e2e", a)
		}
	}
	if len(args) > 0 {
		all = slices.DeleteFunc(all, func(w string) bool { return !slices.Contains(args, w) })
	}
	switch {
	case b.duration <= 0 || b.warmup < 0:
		return nil, usagef("--duration must be above 0 and --warmup 0 or more")
	case b.recordBytes < stampBytes:
		return nil, usagef("--record-bytes %d must be %d or more: a record carries when it was due", b.recordBytes, stampBytes)
	case b.clients < 1 || b.rate < 0 || b.partitions < 1:
		return nil, usagef("--clients and --partitions must be 1 or more, --rate 0 or more")
	case b.produce.acks == "0":
		return nil, usagef("--acks 0 cannot be measured: nothing is acknowledged")
	}
	b.produce.partition, b.produce.deliveryTimeout = -1, time.Minute
	_, err := b.produce.options("")
	return all, err
}

// benchRun is one run of bench.
type benchRun struct {
	flags *benchFlags
	conn  *connection
	notes io.Writer
	topic string
}

func (r *benchRun) all(ctx context.Context, workloads []string) (results []measured, err error) {
	adm, err := r.conn.admin(ctx)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	if r.topic = r.flags.topic; r.topic == "" {
		if err := r.makeTopic(ctx, adm); err != nil {
			return nil, err
		}
		if !r.flags.keep {
			defer func() { err = errors.Join(err, r.deleteTopic(adm)) }()
		}
	}
	run := map[string]func(context.Context, *admin) (measured, error){benchProduce: r.produce, benchConsume: r.consume, benchE2E: r.endToEnd}
	for _, w := range workloads {
		m, err := run[w](ctx, adm)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return results, explain("measuring "+w, err)
		}
		results = append(results, m)
	}
	return results, nil
}

func (r *benchRun) makeTopic(ctx context.Context, adm *admin) error {
	var id [4]byte
	rand.Read(id[:])
	r.topic = "varve-bench-" + hex.EncodeToString(id[:])
	ctx, cancel := r.conn.within(ctx)
	defer cancel()
	answer, err := adm.CreateTopic(ctx, r.flags.partitions, r.flags.replication, nil, r.topic)
	return answered("creating topic "+r.topic, err, answer.ErrMessage)
}

func (r *benchRun) deleteTopic(adm *admin) error {
	ctx, cancel := r.conn.within(context.Background())
	defer cancel()
	_, err := adm.DeleteTopic(ctx, r.topic)
	return explain("deleting topic "+r.topic, err)
}

func benchTable(results []measured) *table {
	t := &table{header: []string{"workload", "loop", "records", "seconds", "records/s", "MiB/s", "latency ms", "p50", "p99", "p99.9", "max", "note"}}
	for _, m := range results {
		figures := []any{m.Workload, m.Loop, m.Records, fmt.Sprintf("%.1f", m.Seconds), fmt.Sprintf("%.0f", m.PerSecond), fmt.Sprintf("%.1f", m.MiBPerSec)}
		if len(m.LatencyMs) == 0 {
			t.add(append(figures, "", "", "", "", "", m.Note)...)
		}
		for _, kind := range sortedKeys(m.LatencyMs) {
			l := m.LatencyMs[kind]
			t.add(append(figures, kind, ms(l.P50), ms(l.P99), ms(l.P999), ms(l.Max), m.Note)...)
			figures = []any{"", "", "", "", "", ""}
			m.Note = ""
		}
	}
	return t
}

func ms(v float64) string { return fmt.Sprintf("%.2f", v) }

func latencyOf(h *histogram) latency {
	in := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return latency{in(h.quantile(0.5)), in(h.quantile(0.99)), in(h.quantile(0.999)), in(time.Duration(h.max.Load()) * time.Microsecond)}
}

func (m *measured) rate(records, bytes int64, took time.Duration) {
	m.Records, m.Bytes, m.Seconds = records, bytes, took.Seconds()
	if took > 0 {
		m.PerSecond, m.MiBPerSec = float64(records)/took.Seconds(), float64(bytes)/(1<<20)/took.Seconds()
	}
}
