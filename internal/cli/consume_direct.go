// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reading is one run of consume.
type reading struct {
	flags *consumeFlags
	topic string
	conn  *connection
	print appendRecord
	out   *bufio.Writer
	notes io.Writer

	buf     []byte
	printed int64
	noted   map[string]bool
}

// span is what is still to be read of one partition: [next, end). With --follow there is no end.
type span struct{ next, end int64 }

const noEnd = int64(1<<63 - 1)

// direct reads partitions without a group: plain Fetch requests from offsets that were looked up before.
func (r *reading) direct(ctx context.Context) error {
	cl, err := r.conn.open(ctx, kgo.FetchIsolationLevel(r.flags.isolationLevel()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepRetryableFetchErrors(), kgo.FetchMaxBytes(maxFetchBytes))
	if err != nil {
		return err
	}
	defer cl.Close()
	spans, err := r.spans(ctx, r.conn.adminOf(cl))
	if err != nil || len(spans) == 0 {
		return err
	}
	start := make(map[int32]kgo.Offset, len(spans))
	for p, s := range spans {
		start[p] = kgo.NewOffset().At(s.next)
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: start})
	err = r.poll(ctx, cl, spans)
	return errors.Join(r.out.Flush(), err)
}

// spans looks up where reading starts and ends; partitions with nothing to read are left out.
func (r *reading) spans(ctx context.Context, adm *admin) (map[int32]*span, error) {
	starts, ends, err := r.bounds(ctx, adm)
	if err != nil {
		return nil, err
	}
	spans := map[int32]*span{}
	for p, start := range starts {
		s := &span{next: start, end: ends[p]}
		if r.flags.follow {
			s.end = noEnd
		}
		if s.next < s.end {
			spans[p] = s
		}
	}
	return spans, nil
}

// bounds looks up where each partition is read from and to.
func (r *reading) bounds(ctx context.Context, adm *admin) (starts, ends map[int32]int64, err error) {
	ctx, cancel := r.conn.within(ctx)
	defer cancel()
	partitions, err := topicPartitions(ctx, adm, r.topic, r.flags.partitions)
	if err != nil {
		return nil, nil, err
	}
	limits := map[positionKind]map[int32]foundOffset{}
	for kind, spec := range map[positionKind]int64{atEarliest: specEarliest, atLatest: specLatest} {
		if limits[kind], err = listOffsets(ctx, adm, r.topic, partitions, spec, r.flags.level); err != nil {
			return nil, nil, explain("looking up offsets of "+r.topic, err)
		}
	}
	if starts, err = r.resolve(ctx, adm, r.flags.start, limits); err != nil {
		return nil, nil, err
	}
	if ends, err = r.resolve(ctx, adm, r.flags.end, limits); err != nil {
		return nil, nil, err
	}
	outside := 0
	for _, p := range partitions {
		earliest, latest := limits[atEarliest][p].offset, limits[atLatest][p].offset
		if r.flags.start.kind == atOffset && (starts[p] < earliest || starts[p] > latest) {
			outside++
			r.note(fmt.Errorf("partition %d of %s holds offsets %d to %d, --from %d is outside", p, r.topic, earliest, latest, starts[p]))
			starts[p] = max(starts[p], earliest)
		}
		ends[p] = min(ends[p], latest)
	}
	if outside == len(partitions) && outside > 0 {
		return nil, nil, fmt.Errorf("--from %d is outside of every partition of %s; `varve offsets %s` shows the offsets", r.flags.start.offset, r.topic, r.topic)
	}
	return starts, ends, nil
}

// resolve turns a place into an offset per partition. A time behind all records is the end.
func (r *reading) resolve(ctx context.Context, adm *admin, at position, limits map[positionKind]map[int32]foundOffset) (map[int32]int64, error) {
	offsets := make(map[int32]int64, len(limits[atLatest]))
	found := limits[at.kind]
	if at.kind == atTime {
		partitions := make([]int32, 0, len(offsets))
		for p := range limits[atLatest] {
			partitions = append(partitions, p)
		}
		var err error
		if found, err = listOffsets(ctx, adm, r.topic, partitions, at.at.time.UnixMilli(), r.flags.level); err != nil {
			return nil, explain("looking up "+at.at.String()+" in "+r.topic, err)
		}
	}
	for p, latest := range limits[atLatest] {
		switch {
		case at.kind == atOffset:
			offsets[p] = at.offset
		case found[p].offset == noOffset:
			offsets[p] = latest.offset
		default:
			offsets[p] = found[p].offset
		}
	}
	return offsets, nil
}

// poll prints until every span is read, --count is reached or ctx ends.
func (r *reading) poll(ctx context.Context, cl *kgo.Client, spans map[int32]*span) error {
	heard := time.Now()
	for len(spans) > 0 {
		pollCtx, cancel := context.WithTimeout(ctx, idleProbe)
		fetches := cl.PollRecords(pollCtx, maxPollRecords)
		cancel()
		if ctx.Err() != nil {
			return nil // an interrupt is how --follow ends
		}
		last, err := r.fetchError(fetches)
		if err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			heard = time.Now()
			if done, err := r.printFetches(cl, fetches, spans); done || err != nil {
				return err
			}
			continue
		}
		if err := r.out.Flush(); err != nil {
			return err
		}
		if r.flags.follow {
			continue
		}
		if err := r.skipInvisible(ctx, cl, spans); err != nil {
			last = err
		}
		if silent := time.Since(heard); silent > r.conn.timeout && len(spans) > 0 {
			return explain(fmt.Sprintf("reading %s: nothing came for %s though there is more", r.topic, silent.Round(time.Second)), errors.Join(last, context.DeadlineExceeded))
		}
	}
	return nil
}

// printFetches prints the records within the spans and drops spans that are done.
func (r *reading) printFetches(cl *kgo.Client, fetches kgo.Fetches, spans map[int32]*span) (done bool, err error) {
	iter := fetches.RecordIter()
	for !iter.Done() {
		rec := iter.Next()
		s := spans[rec.Partition]
		if s == nil || rec.Offset < s.next {
			continue
		}
		s.next = rec.Offset + 1
		if rec.Offset < s.end && !rec.Attrs.IsControl() {
			if err := r.printRecord(rec); err != nil {
				return true, err
			}
			if r.flags.count > 0 && r.printed >= r.flags.count {
				return true, nil
			}
		}
		if s.next >= s.end {
			delete(spans, rec.Partition)
			cl.PauseFetchPartitions(map[string][]int32{r.topic: {rec.Partition}})
		}
	}
	if cl.BufferedFetchRecords() == 0 {
		return false, r.out.Flush() // nothing else is ready: show what there is
	}
	return false, nil
}

func (r *reading) printRecord(rec *kgo.Record) error {
	r.buf = r.print(r.buf[:0], rec)
	r.printed++
	_, err := r.out.Write(r.buf)
	return err
}

// fetchError returns a fatal error, and the last one of those that the client retries.
func (r *reading) fetchError(fetches kgo.Fetches) (retried, fatal error) {
	fetches.EachError(func(_ string, p int32, err error) {
		var ke *kerr.Error
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		case errors.As(err, &ke) && !ke.Retriable, errors.Is(err, kerr.OffsetOutOfRange):
			fatal = explain(fmt.Sprintf("reading partition %d of %s", p, r.topic), err)
		default:
			retried = fmt.Errorf("partition %d: %w", p, err)
			r.note(fmt.Errorf("retrying: %w", retried))
		}
	})
	return retried, fatal
}

// note shows each kind of trouble that does not end the reading once.
func (r *reading) note(err error) {
	text := oneLine(err.Error())
	if r.noted[text] {
		return
	}
	if r.noted == nil {
		r.noted = map[string]bool{}
	}
	if len(r.noted) < maxNotes {
		r.noted[text] = true
		fmt.Fprintf(r.notes, "note: %s\n", text)
	}
}

// skipInvisible advances spans over offsets that hold nothing to deliver (aborted transactions, compacted batches): the client
// passes them silently, so that a span that ends in such offsets would never be seen to end.
func (r *reading) skipInvisible(ctx context.Context, cl *kgo.Client, spans map[int32]*span) error {
	var last error
	for p, s := range spans {
		next, visible, err := r.probe(ctx, cl, p, s.next)
		switch {
		case err != nil:
			last = fmt.Errorf("partition %d: %w", p, err)
		case visible: // the client will deliver it
		case next >= s.end:
			delete(spans, p)
		default:
			s.next = next
		}
	}
	return last
}

// probe fetches once at offset and tells how far the answer reaches and whether it holds a record to deliver.
func (r *reading) probe(ctx context.Context, cl *kgo.Client, partition int32, offset int64) (next int64, visible bool, err error) {
	leader, _, err := cl.PartitionLeader(r.topic, partition)
	if err != nil {
		return offset, false, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.IsolationLevel = maxProbeBytes, r.flags.level.level()
	req.SessionEpoch = -1
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, maxProbeBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.Partitions = r.topic, append(rt.Partitions, rp)
	if rt.TopicID, err = topicIDOf(ctx, r.conn.adminOf(cl), r.topic); err != nil {
		return offset, false, err
	}
	req.Topics = append(req.Topics, rt)
	resp, err := cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return offset, false, err
	}
	for _, t := range resp.(*kmsg.FetchResponse).Topics {
		for i := range t.Partitions {
			opts := kgo.ProcessFetchPartitionOpts{Offset: offset, IsolationLevel: r.flags.isolationLevel(), Topic: r.topic, Partition: partition}
			fp, next := kgo.ProcessFetchPartition(opts, &t.Partitions[i], kgo.DefaultDecompressor(), nil)
			return next, len(fp.Records) > 0, fp.Err
		}
	}
	return offset, false, kerr.ErrorForCode(resp.(*kmsg.FetchResponse).ErrorCode)
}

func topicIDOf(ctx context.Context, adm *admin, topic string) ([16]byte, error) {
	details, err := adm.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return [16]byte{}, err
	}
	return details[topic].ID, details[topic].Err
}
