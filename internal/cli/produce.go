// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

type produceFlags struct {
	file            string
	delimited, json bool
	separator       string
	headers         []string
	partition       int32
	compression     string
	acks            string
	transactionalID string
	batchBytes      int32
	linger          time.Duration
	deliveryTimeout time.Duration
	times           eventTimeFlags
}

func newProduceCommand(s *streams) *cobra.Command {
	var p produceFlags
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Write lines, length-delimited values or JSON as records",
		Long: "Reads standard input or --file. Each line is one record; with --length-delimited each value follows its length as a\n" +
			"big-endian uint32; with --json each line is an object as `varve consume --output json` writes it.\n" +
			"The time of a record is the time of sending, or with --time-regex and --time-layout the time found in the line.\n" +
			"A topic that does not exist is created if the cluster has auto.create.topics.enable, as `varve dev` has.\n" +
			"Prints how many records the broker acknowledged, also when it ends early.",
		Example: "  varve produce logs < app.log\n" +
			"  varve produce hdfs --file HDFS.log --time-regex '^(\\d{6} \\d{6})' --time-layout '060102 150405' --time-zone UTC\n" +
			"  varve produce users --key-separator : --compression zstd",
		Args: exactArgs("TOPIC"),
	}
	p.register(cmd)
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if p.transactionalID == "" && cmd.Flags().Changed("transactional-id") { // of a shell variable that is not set
			return usagef("--transactional-id is empty: give the id, or leave the flag out to write without a transaction")
		}
		opts, err := p.options(args[0])
		if err != nil {
			return err
		}
		times, err := p.times.build()
		if err != nil {
			return err
		}
		headers, err := parseHeaders(p.headers)
		if err != nil {
			return err
		}
		in, closeInput, err := p.input(s)
		if err != nil {
			return err
		}
		defer closeInput()
		stall := new(stalled)
		cl, err := conn.open(cmd.Context(), append(opts, kgo.WithLogger(stall))...)
		if err != nil {
			return err
		}
		defer cl.Close()
		adm := conn.adminOf(cl)
		topic, err := lookUpTarget(cmd.Context(), conn, adm, args[0], p.partition)
		if err == nil && p.transactionalID != "" {
			err = conn.awaitCoordinator(cmd.Context(), adm, transactionCoordinator, p.transactionalID)
		}
		if err != nil {
			return err
		}
		l := &load{flags: &p, topic: topic, client: cl, headers: headers, source: p.source(in, times), warn: s.err, progress: newProgress(s.err), stalled: stall}
		return l.run(cmd.Context(), adm, s, *out)
	}
	return cmd
}

func (p *produceFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.file, "file", "f", "", "read this file instead of standard input")
	f.BoolVar(&p.delimited, "length-delimited", false, "values that each follow their length, a big-endian uint32")
	f.BoolVar(&p.json, "json", false, "one JSON object per line: key, value, timestamp, partition, headers")
	f.StringVarP(&p.separator, "key-separator", "K", "", "what separates key and value in a line; a line without it has no key")
	f.StringArrayVarP(&p.headers, "header", "H", nil, "header `KEY=VALUE` for every record, repeatable")
	f.Int32VarP(&p.partition, "partition", "p", -1, "write to this partition (-1: by key, or spread)")
	f.StringVarP(&p.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	f.StringVar(&p.acks, "acks", "all", "all, 1 or 0")
	f.StringVar(&p.transactionalID, "transactional-id", "", fmt.Sprintf("write the whole input, which may take %s, in one transaction of this id", transactionTimeout))
	f.Int32Var(&p.batchBytes, "batch-bytes", 1_000_000, "largest batch before compression")
	f.DurationVar(&p.linger, "linger", 5*time.Millisecond, "wait this long to fill a batch")
	f.DurationVar(&p.deliveryTimeout, "delivery-timeout", 2*time.Minute, "give up when nothing is acknowledged for this long")
	f.StringVar(&p.times.regex, "time-regex", "", "regular expression that finds the event time; its groups, joined by a space, or its match are parsed")
	f.StringVar(&p.times.layout, "time-layout", "", "how the found time is written: a Go layout, unix (seconds) or unixms")
	f.StringVar(&p.times.zone, "time-zone", defaultZone, "zone of times that do not carry one: Local, UTC, Europe/Berlin …")
	f.StringVar(&p.times.missing, "time-missing", missingFails, "a line without event time: fail, previous (time of the line before) or now")
}

// options turns the flags into a producer's and finds what is wrong with them.
func (p *produceFlags) options(topic string) ([]kgo.Opt, error) {
	codec, ok := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[p.compression]
	switch {
	case !ok:
		return nil, usagef("--compression %q is not none, gzip, snappy, lz4 or zstd", p.compression)
	case p.delimited && p.json:
		return nil, usagef("--length-delimited and --json exclude each other")
	case p.separator != "" && (p.delimited || p.json):
		return nil, usagef("--key-separator is for lines only")
	case p.delimited && p.times.regex != "":
		return nil, usagef("--time-regex is for lines and JSON only")
	case p.partition < -1:
		return nil, usagef("--partition %d is not a partition; -1 leaves the choice to the producer", p.partition)
	case p.transactionalID != "" && p.acks != "all" && p.acks != "-1":
		return nil, usagef("a transaction needs --acks all")
	case p.batchBytes < 1 || p.deliveryTimeout < time.Second || p.linger < 0:
		return nil, usagef("--batch-bytes must be 1 or more, --delivery-timeout 1s or more, --linger 0 or more")
	}
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(p.batchBytes),
		kgo.ProducerLinger(p.linger),
		kgo.MaxBufferedRecords(maxQueuedRecords),
		kgo.MaxBufferedBytes(max(maxQueuedBytes, maxInputRecordBytes)),
		kgo.BrokerMaxWriteBytes(maxInputRecordBytes + 1<<20),
		kgo.RecordPartitioner(&partitioner{kgo.StickyKeyPartitioner(nil)}),
	}
	switch p.acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks %q is not all, 1 or 0", p.acks)
	}
	if p.transactionalID != "" {
		return append(opts, kgo.TransactionalID(p.transactionalID), kgo.TransactionTimeout(transactionTimeout)), nil
	}
	// After the first failure nothing more is sent, so giving up on a record in flight cannot reorder or repeat others.
	return append(opts, kgo.AllowIdempotentProduceCancellation()), nil
}

func (p *produceFlags) input(s *streams) (io.Reader, func() error, error) {
	if p.file == "" || p.file == "-" {
		return s.in, func() error { return nil }, nil
	}
	f, err := os.Open(p.file)
	if err != nil {
		return nil, nil, usagef("--file: %s", err)
	}
	return f, f.Close, nil
}

func (p *produceFlags) source(in io.Reader, times *eventTime) recordSource {
	buffered := bufio.NewReaderSize(in, 1<<20)
	switch {
	case p.json:
		return &jsonSource{in: buffered, times: times}
	case p.delimited:
		return &delimitedSource{in: buffered}
	}
	return &lineSource{in: buffered, separator: []byte(p.separator), times: times}
}

func parseHeaders(pairs []string) ([]kgo.RecordHeader, error) {
	var hs []kgo.RecordHeader
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("--header %q is not KEY=VALUE", p)
		}
		hs = append(hs, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return hs, nil
}

// partitioner obeys a partition that a record names and leaves the rest to Kafka's usual choice.
type partitioner struct{ usual kgo.Partitioner }

func (p *partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{p.usual.ForTopic(topic)}
}

type topicPartitioner struct{ usual kgo.TopicPartitioner }

func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.usual.RequiresConsistency(r)
}

func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.usual.Partition(r, n)
}

// OnNewBatch lets the usual choice stick to one partition per batch.
func (p *topicPartitioner) OnNewBatch() {
	if b, ok := p.usual.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}

// target is the topic that is written to and what its configs say about event times.
type target struct {
	name string
	// retention is how old a record may be before it is deleted; negative: for ever, or not known.
	retention time.Duration
	// stampsArrival is message.timestamp.type=LogAppendTime: the broker replaces event times.
	stampsArrival bool
}

// lookUpTarget waits for the topic, which the broker may create for us, and reads the configs that concern event times.
func lookUpTarget(ctx context.Context, conn *connection, adm *admin, topic string, partition int32) (target, error) {
	t := target{name: topic, retention: -1}
	ctx, cancel := conn.within(ctx)
	defer cancel()
	if partition >= 0 {
		if err := mayHave(ctx, adm, topic, partition); err != nil {
			return t, err
		}
	}
	if err := awaitTopic(ctx, adm, topic); err != nil {
		return t, explain("looking up topic "+topic, err)
	}
	if partition >= 0 {
		if _, err := topicPartitions(ctx, adm, topic, []int32{partition}); err != nil {
			return t, err
		}
	}
	configs, err := describeConfigs(ctx, adm, resource{topicResource, topic}, []string{"retention.ms", "cleanup.policy", "message.timestamp.type"}, false)
	if err != nil {
		return t, nil // writing may be allowed where describing is not: then nothing is known about its times
	}
	values := map[string]string{}
	for _, c := range configs {
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	t.stampsArrival = values["message.timestamp.type"] == "LogAppendTime"
	if strings.Contains(values["cleanup.policy"], "delete") {
		t.retention = retentionOf(values["retention.ms"])
	}
	return t, nil
}

// mayHave refuses a partition that a topic which is not there yet would not get either, so that asking for it makes no topic.
func mayHave(ctx context.Context, adm *admin, topic string, partition int32) error {
	would, err := adm.ValidateCreateTopics(ctx, -1, -1, nil, topic)
	if err != nil {
		return nil // it may be allowed to write and not to create
	}
	if w := would[topic]; w.Err == nil && w.NumPartitions > 0 && partition >= w.NumPartitions {
		return fmt.Errorf("there is no topic %s, and it would be created with %s, numbered from 0: not with partition %d", topic, counted(int(w.NumPartitions), "partition"), partition)
	}
	return nil
}

// errStopped is why sending ended once the reason has been recorded.
var errStopped = errors.New("stopped")

func (t target) String() string { return fmt.Sprintf("topic %s", t.name) }
