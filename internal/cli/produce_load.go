// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// load is one run of produce: it reads, sends and counts what was acknowledged.
type load struct {
	flags    *produceFlags
	topic    target
	client   *kgo.Client
	headers  []kgo.RecordHeader
	source   recordSource
	warn     io.Writer
	progress *progress
	stalled  *stalled

	// heard is when the last acknowledgement came, or the first record after silence was sent: nanoseconds since 1970.
	heard atomic.Int64

	mu struct {
		sync.Mutex
		failed     error // the first refusal
		records    int64
		bytes      int64
		partitions map[int32]*ackedRange
	}
}

// ackedRange is what one partition acknowledged.
type ackedRange struct {
	Partition int32 `json:"partition"`
	Records   int64 `json:"records"`
	First     int64 `json:"firstOffset"`
	Last      int64 `json:"lastOffset"`
}

type produced struct {
	Topic        string        `json:"topic"`
	Acknowledged int64         `json:"acknowledged"`
	Sent         int64         `json:"sent"`
	Bytes        int64         `json:"bytes"`
	Seconds      float64       `json:"seconds"`
	Acks         string        `json:"acks"`
	Transaction  string        `json:"transaction,omitempty"`
	TimeZone     string        `json:"timeZone,omitempty"`
	Partitions   []*ackedRange `json:"partitions"`
	Error        string        `json:"error,omitempty"`
}

func (l *load) run(ctx context.Context, adm *admin, s *streams, out outputFlag) error {
	start := time.Now()
	l.mu.partitions = map[int32]*ackedRange{}
	// Sending is not bound to ctx: what an interrupt leaves in flight is still waited for, so that the count is true.
	sendCtx, stopSending := context.WithCancelCause(context.Background())
	defer stopSending(nil)
	go l.watch(sendCtx, stopSending)
	if l.flags.transactionalID != "" {
		if err := l.client.BeginTransaction(); err != nil {
			return explain("beginning the transaction", err)
		}
	}
	sent, err := l.sendAll(ctx, sendCtx, stopSending)
	if err == nil || errors.Is(err, context.Canceled) {
		err = errors.Join(l.flush(ctx, sendCtx), err)
	}
	l.progress.clear()
	stopSending(errStopped)
	ended, txnErr := l.endTransaction(err == nil && l.failure() == nil)
	if failed := l.failure(); failed != nil {
		err = failed
	}
	if isFenced(err) || isFenced(txnErr) {
		err = l.fenced(adm, time.Since(start), !isFenced(err)) // both say the same
	} else {
		err = errors.Join(err, txnErr)
	}
	result := l.result(sent, time.Since(start), ended)
	if err != nil {
		result.Error = oneLine(err.Error())
	}
	if showErr := result.show(s.out, out); showErr != nil {
		return errors.Join(err, showErr)
	}
	return err
}

// sendAll feeds the client until the input ends, a record is refused or ctx is done. Reading may block for ever on a
// terminal, so it has a goroutine of its own, which ends with the process if the input never does.
func (l *load) sendAll(ctx, sendCtx context.Context, stopSending func(error)) (sent int64, err error) {
	type item struct {
		record *kgo.Record
		err    error
	}
	items := make(chan item, 1024)
	go func() {
		defer close(items)
		for {
			r, err := l.source.next()
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case items <- item{r, err}:
			case <-sendCtx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return sent, explain("writing to "+l.topic.name, ctx.Err())
		case <-sendCtx.Done():
			return sent, context.Cause(sendCtx)
		case it, more := <-items:
			if !more {
				return sent, nil
			}
			if it.err != nil {
				return sent, errors.Join(it.err, l.flush(ctx, sendCtx))
			}
			l.send(sendCtx, it.record, stopSending)
			sent++
		}
	}
}

func (l *load) send(ctx context.Context, r *kgo.Record, stop func(error)) {
	if l.flags.partition >= 0 {
		r.Partition = l.flags.partition
	} else if !l.flags.json {
		r.Partition = -1
	}
	if len(l.headers) > 0 {
		r.Headers = append(r.Headers, l.headers...)
	}
	l.warnOfTime(r.Timestamp)
	if l.client.BufferedProduceRecords() == 0 {
		l.heard.Store(time.Now().UnixNano())
	}
	l.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		if err != nil {
			l.fail(explain("writing to "+l.topic.name, err))
			stop(errStopped)
			return
		}
		l.count(r)
	})
}

// warnOfTime says once that an event time will not do what the user expects.
func (l *load) warnOfTime(t time.Time) {
	if t.IsZero() {
		return
	}
	text := ""
	switch age := time.Since(t); {
	case l.topic.stampsArrival:
		text = fmt.Sprintf("%s has message.timestamp.type=LogAppendTime: the broker replaces event times by the time of arrival", l.topic)
	case l.topic.retention >= 0 && age > l.topic.retention:
		text = fmt.Sprintf("event time %s is older than the retention of %s (retention.ms=%d): the broker may delete such records at once; `varve config set --topic %s retention.ms=-1` keeps them",
			formatTime(t), l.topic, l.topic.retention.Milliseconds(), l.topic.name)
	default:
		return
	}
	l.topic.stampsArrival, l.topic.retention = false, -1
	l.progress.clear()
	fmt.Fprintf(l.warn, "warning: %s\n", text)
}

// watch gives up when records are on their way and nothing is acknowledged any more. (The client's own limit counts from a
// record's timestamp, so that old event times would fail at once.)
func (l *load) watch(ctx context.Context, stop func(error)) {
	tick := time.NewTicker(stallLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			silent := now.Sub(time.Unix(0, l.heard.Load()))
			if silent >= stallLook && l.client.BufferedProduceRecords() > 0 {
				l.stalled.listen()
			}
			if silent < l.flags.deliveryTimeout || l.client.BufferedProduceRecords() == 0 {
				continue
			}
			l.fail(fmt.Errorf("writing to %s: nothing acknowledged for %s%s; `varve why %s` says what its partitions wait for; --delivery-timeout %s was given",
				l.topic.name, silent.Round(100*time.Millisecond), l.stalled.why(), l.topic.name, l.flags.deliveryTimeout))
			stop(errStopped)
			return
		}
	}
}

func (l *load) count(r *kgo.Record) {
	l.heard.Store(time.Now().UnixNano())
	l.stalled.off.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.records++
	l.mu.bytes += int64(len(r.Key) + len(r.Value))
	p := l.mu.partitions[r.Partition]
	if p == nil {
		p = &ackedRange{Partition: r.Partition, First: r.Offset}
		l.mu.partitions[r.Partition] = p
	}
	p.Records++
	p.First, p.Last = min(p.First, r.Offset), max(p.Last, r.Offset)
	l.progress.update(l.mu.records, l.mu.bytes)
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed == nil && !errors.Is(err, errStopped) {
		l.mu.failed = err
	}
}

func (l *load) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.failed
}

// flush waits for what was sent: after an interrupt only for a while, and not at all once a record was refused.
func (l *load) flush(ctx, sendCtx context.Context) error {
	flushCtx, cancel := context.WithCancel(sendCtx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(flushAfterInterrupt, cancel)
	})
	defer stop()
	if err := l.client.Flush(flushCtx); err != nil && sendCtx.Err() == nil {
		return errors.New("records in flight were not acknowledged in time; they may or may not have been written")
	}
	return nil
}

// endTransaction commits when everything was acknowledged and aborts otherwise.
func (l *load) endTransaction(commit bool) (string, error) {
	if l.flags.transactionalID == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.flags.deliveryTimeout)
	defer cancel()
	if !commit {
		_ = l.client.AbortBufferedRecords(ctx) // a failure here shows in the abort itself
		return "aborted", explain("aborting the transaction", l.client.EndTransaction(ctx, kgo.TryAbort))
	}
	if err := l.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return "commit failed", explain("committing the transaction", err)
	}
	return "committed", nil
}

func (l *load) result(sent int64, took time.Duration, transaction string) *produced {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &produced{Topic: l.topic.name, Acknowledged: l.mu.records, Sent: sent, Bytes: l.mu.bytes, Seconds: took.Seconds(),
		Acks: l.flags.acks, Transaction: transaction, Partitions: []*ackedRange{}}
	if l.flags.acks == "0" {
		p.Acknowledged = 0
	}
	p.TimeZone = l.flags.times.assumedZone()
	for _, n := range slices.Sorted(maps.Keys(l.mu.partitions)) {
		p.Partitions = append(p.Partitions, l.mu.partitions[n])
	}
	return p
}

func (p *produced) show(w io.Writer, out outputFlag) error {
	if out == outputJSON {
		return writeJSON(w, p)
	}
	text := fmt.Sprintf("acknowledged %d records to %s", p.Acknowledged, p.Topic)
	if p.Acks == "0" {
		text = fmt.Sprintf("sent %d records to %s (--acks 0: nothing is acknowledged)", p.Sent, p.Topic)
	}
	text += fmt.Sprintf(" (%s in %.1f s)", formatBytes(float64(p.Bytes)), p.Seconds)
	if p.Transaction != "" {
		text += ", transaction " + p.Transaction
	}
	if p.TimeZone != "" {
		text += ", event times without a zone read as " + p.TimeZone
	}
	if err := writeLine(w, "%s", text); err != nil || p.Acks == "0" || len(p.Partitions) == 0 {
		return err
	}
	t := &table{header: []string{"partition", "records", "first", "last"}}
	for _, r := range p.Partitions {
		t.add(r.Partition, r.Records, r.First, r.Last)
	}
	return t.write(w)
}

// retentionOf reads retention.ms; -1 and what does not fit a duration are for ever.
func retentionOf(value string) time.Duration {
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// awaitTopic asks for the topic as a producer does, so that a broker that creates topics by itself does, and waits for it.
func awaitTopic(ctx context.Context, adm *admin, topic string) error {
	deadline := time.Now().Add(autoCreateWait)
	for {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = true
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, adm.kafka)
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 {
			return fmt.Errorf("the broker answered about %d topics instead of one", len(resp.Topics))
		}
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		pending := errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.LeaderNotAvailable)
		if !pending || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
