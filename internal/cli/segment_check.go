// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

// dump is one run of segment dump.
type dump struct {
	summary, records, json bool
	credentials            string
	object                 object
	out                    io.Writer
}

// dumped is a segment as JSON.
type dumped struct {
	Cluster        string          `json:"clusterId"`
	Gen            int64           `json:"gen"`
	Topic          string          `json:"topic"`
	TopicID        string          `json:"topicId"`
	Partition      int32           `json:"partition"`
	LeaderEpoch    record.Epoch    `json:"leaderEpoch"`
	Attempt        string          `json:"attempt"`
	Base           record.Offset   `json:"baseOffset"`
	End            record.Offset   `json:"endOffset"`
	Records        int64           `json:"records"`
	Bytes          int64           `json:"bytes"`
	DataBytes      int64           `json:"dataBytes"`
	MinTimestamp   int64           `json:"minTimestamp"`
	MaxTimestamp   int64           `json:"maxTimestamp"`
	OffsetOfMax    record.Offset   `json:"offsetOfMaxTimestamp"`
	FirstUnstable  record.Offset   `json:"firstUnstable"`
	SealedAt       int64           `json:"sealedAt"`
	Epochs         []dumpedEpoch   `json:"epochs"`
	Aborted        []dumpedAborted `json:"aborted"`
	Producers      int             `json:"producers"`
	Chunks         []dumpedChunk   `json:"chunks"`
	Batches        []dumpedBatch   `json:"batches,omitempty"`
	Faults         []string        `json:"faults"`
	checkedBatches int
}

type dumpedEpoch struct {
	Epoch record.Epoch  `json:"epoch"`
	Start record.Offset `json:"start"`
}

type dumpedAborted struct {
	ProducerID int64         `json:"producerId"`
	First      record.Offset `json:"firstOffset"`
	Marker     record.Offset `json:"markerOffset"`
}

type dumpedChunk struct {
	Base         record.Offset `json:"baseOffset"`
	Position     int64         `json:"position"`
	Length       int32         `json:"length"`
	Records      int32         `json:"records"`
	MaxTimestamp int64         `json:"maxTimestamp"`
}

type dumpedBatch struct {
	Base          record.Offset  `json:"baseOffset"`
	Last          record.Offset  `json:"lastOffset"`
	Bytes         int            `json:"bytes"`
	Records       int32          `json:"records"`
	Codec         string         `json:"codec"`
	LeaderEpoch   record.Epoch   `json:"leaderEpoch"`
	MaxTimestamp  int64          `json:"maxTimestamp"`
	ProducerID    int64          `json:"producerId"`
	ProducerEpoch int16          `json:"producerEpoch"`
	BaseSequence  int32          `json:"baseSequence"`
	Flags         string         `json:"flags,omitempty"`
	Content       []dumpedRecord `json:"content,omitempty"`
}

type dumpedRecord struct {
	Offset    record.Offset `json:"offset"`
	Timestamp int64         `json:"timestamp"`
	Key       *string       `json:"key,omitempty"`
	KeyBase64 *string       `json:"keyBase64,omitempty"`
	Value     *string       `json:"value,omitempty"`
	ValueB64  *string       `json:"valueBase64,omitempty"`
}

func (d *dump) run(ctx context.Context) error {
	index, err := d.index(ctx)
	if err != nil {
		return fmt.Errorf("reading the footer: %w", err)
	}
	result := describeIndex(index)
	if err := d.checkHeader(ctx, index, result); err != nil {
		return err
	}
	if !d.summary {
		if err := d.checkData(ctx, index, result); err != nil {
			return err
		}
	}
	if err := d.checkProducers(ctx, index, result); err != nil {
		return err
	}
	if d.json {
		err = writeJSON(d.out, result)
	} else {
		err = writeDump(d.out, result, d.summary)
	}
	if err == nil && len(result.Faults) > 0 {
		err = fmt.Errorf("%d checks failed; the first: %s", len(result.Faults), result.Faults[0])
	}
	return err
}

// index reads the end of the object, once more when the footer is longer than guessed.
func (d *dump) index(ctx context.Context) (*segment.Index, error) {
	size := d.object.Size()
	want := min(size, firstFooterRead)
	for {
		tail, err := d.object.Range(ctx, size-want, want)
		if err != nil {
			return nil, err
		}
		x, err := segment.ReadIndex(tail, size)
		var more *segment.NeedMore
		if !errors.As(err, &more) || more.Bytes <= want || more.Bytes > size {
			return x, err
		}
		want = more.Bytes
	}
}

func describeIndex(x *segment.Index) *dumped {
	i := &x.Info
	r := &dumped{Cluster: i.ClusterID, Gen: i.Gen, Topic: i.TopicName, TopicID: i.Topic.String(), Partition: i.Partition, LeaderEpoch: i.LeaderEpoch,
		Attempt: i.Attempt.String(), Base: i.Base, End: i.End, Records: i.Records, Bytes: i.Bytes, DataBytes: i.DataBytes,
		MinTimestamp: i.MinTimestamp, MaxTimestamp: i.MaxTimestamp, OffsetOfMax: i.OffsetOfMax, FirstUnstable: i.FirstUnstable,
		SealedAt: i.SealedAtMillis, Epochs: []dumpedEpoch{}, Aborted: []dumpedAborted{}, Producers: int(x.Producers.Count), Chunks: []dumpedChunk{}, Faults: []string{}}
	for _, e := range x.Epochs {
		r.Epochs = append(r.Epochs, dumpedEpoch{e.Epoch, e.Start})
	}
	for _, a := range x.Aborted {
		r.Aborted = append(r.Aborted, dumpedAborted{a.ProducerID, a.First, a.Marker})
	}
	for _, c := range x.Chunks {
		r.Chunks = append(r.Chunks, dumpedChunk{c.Base, c.Pos, c.Len, c.Records, c.MaxTimestamp})
	}
	return r
}

func (r *dumped) fault(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

func (d *dump) checkHeader(ctx context.Context, x *segment.Index, r *dumped) error {
	head, err := d.object.Range(ctx, 0, x.Info.DataPos)
	if err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	id, _, err := segment.ReadHeader(head)
	switch {
	case err != nil:
		r.fault("header: %s", err)
	case id != x.Info.Identity:
		r.fault("header and footer name different identities: %+v and %+v", id, x.Info.Identity)
	}
	return nil
}

// checkData reads chunk by chunk, so that memory does not grow with the segment.
func (d *dump) checkData(ctx context.Context, x *segment.Index, r *dumped) error {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	next, records := x.Info.Base, int64(0)
	for i, c := range x.Chunks {
		data, err := d.object.Range(ctx, c.Pos, int64(c.Len))
		if err != nil {
			return fmt.Errorf("reading chunk %d: %w", i, err)
		}
		sum.Write(data)
		if err := x.VerifyChunk(i, data); err != nil {
			r.fault("chunk %d at %d: %s", i, c.Pos, err)
			next, records = x.ChunkEnd(i), records+int64(c.Records)
			continue
		}
		for rest := data; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.Split(rest); err != nil {
				r.fault("chunk %d: %s", i, err)
				break
			}
			if b.BaseOffset() < next {
				r.fault("batch at %d begins below %d", b.BaseOffset(), next)
			}
			next, records = b.NextOffset(), records+int64(b.RecordCount())
			d.addBatch(r, b)
		}
	}
	if next != x.Info.End {
		r.fault("the batches end at offset %d, the footer says %d", next, x.Info.End)
	}
	if records != x.Info.Records {
		r.fault("the batches hold %d records, the footer says %d", records, x.Info.Records)
	}
	if sum.Sum32() != x.Info.DataCRC {
		r.fault("checksum of all batches is %08x, the footer says %08x", sum.Sum32(), x.Info.DataCRC)
	}
	return nil
}

func (d *dump) addBatch(r *dumped, b record.Batch) {
	out := dumpedBatch{Base: b.BaseOffset(), Last: b.LastOffset(), Bytes: len(b), Records: b.RecordCount(), Codec: b.Codec().String(), LeaderEpoch: b.LeaderEpoch(),
		MaxTimestamp: b.MaxTimestamp(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), Flags: batchFlags(b)}
	r.checkedBatches++
	count := int32(0)
	err := b.Each(func(rec *record.Record) bool {
		count++
		if d.records {
			dr := dumpedRecord{Offset: rec.Offset, Timestamp: rec.Timestamp}
			dr.Key, dr.KeyBase64 = textOrEncoded(rec.Key)
			dr.Value, dr.ValueB64 = textOrEncoded(rec.Value)
			out.Content = append(out.Content, dr)
		}
		return true
	})
	if err != nil {
		r.fault("records of the batch at %d: %s", b.BaseOffset(), err)
	} else if count != b.RecordCount() {
		r.fault("the batch at %d holds %d records, its header says %d", b.BaseOffset(), count, b.RecordCount())
	}
	r.Batches = append(r.Batches, out)
}

func batchFlags(b record.Batch) string {
	var flags []string
	for _, f := range []struct {
		set  bool
		name string
	}{{b.IsTransactional(), "transactional"}, {b.IsControl(), "control"}, {b.IsLogAppendTime(), "log-append-time"}} {
		if f.set {
			flags = append(flags, f.name)
		}
	}
	if b.IsControl() {
		if m, ok, err := b.Marker(); err == nil && ok && m.Commit {
			flags = append(flags, fmt.Sprintf("commit by coordinator epoch %d", m.CoordinatorEpoch))
		} else if err == nil && ok {
			flags = append(flags, fmt.Sprintf("abort by coordinator epoch %d", m.CoordinatorEpoch))
		}
	}
	return strings.Join(flags, ",")
}

func (d *dump) checkProducers(ctx context.Context, x *segment.Index, r *dumped) error {
	if x.Producers.Len == 0 {
		return nil
	}
	b, err := d.object.Range(ctx, x.Producers.Pos, int64(x.Producers.Len))
	if err != nil {
		return fmt.Errorf("reading the producer snapshot: %w", err)
	}
	if _, err := segment.DecodeProducers(b, x.Producers); err != nil {
		r.fault("producer snapshot: %s", err)
	}
	return nil
}

func writeDump(w io.Writer, r *dumped, summary bool) error {
	fmt.Fprintf(w, "segment of %s-%d (topic id %s), cluster %s gen %d, leader epoch %d, attempt %s\n", r.Topic, r.Partition, r.TopicID, r.Cluster, r.Gen, r.LeaderEpoch, r.Attempt)
	fmt.Fprintf(w, "offsets [%d, %d), %d records, %d bytes of which %d data, sealed %s\n", r.Base, r.End, r.Records, r.Bytes, r.DataBytes, formatMillis(r.SealedAt))
	fmt.Fprintf(w, "times %s to %s (at offset %d), first unstable %d, %d producers\n", cell(formatMillis(r.MinTimestamp)), cell(formatMillis(r.MaxTimestamp)), r.OffsetOfMax, r.FirstUnstable, r.Producers)
	tables := []*table{{header: []string{"epoch", "start"}}, {header: []string{"aborted producer", "first", "marker"}}, {header: []string{"chunk", "position", "length", "records", "last time"}},
		{header: []string{"batch", "last", "bytes", "records", "codec", "epoch", "last time", "producer", "flags"}}}
	for _, e := range r.Epochs {
		tables[0].add(e.Epoch, e.Start)
	}
	for _, a := range r.Aborted {
		tables[1].add(a.ProducerID, a.First, a.Marker)
	}
	for _, c := range r.Chunks {
		tables[2].add(c.Base, c.Position, c.Length, c.Records, formatMillis(c.MaxTimestamp))
	}
	for _, b := range r.Batches {
		producer := ""
		if b.ProducerID >= 0 {
			producer = fmt.Sprintf("%d/%d/%d", b.ProducerID, b.ProducerEpoch, b.BaseSequence)
		}
		tables[3].add(b.Base, b.Last, b.Bytes, b.Records, b.Codec, b.LeaderEpoch, formatMillis(b.MaxTimestamp), producer, b.Flags)
	}
	for _, t := range tables {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if err := t.write(w); err != nil {
			return err
		}
	}
	for _, b := range r.Batches {
		for _, rec := range b.Content {
			fmt.Fprintf(w, "%d %s key=%s value=%s\n", rec.Offset, formatMillis(rec.Timestamp), shown(rec.Key, rec.KeyBase64), shown(rec.Value, rec.ValueB64))
		}
	}
	checked := fmt.Sprintf("header, footer, producers, %d chunks and %d batches", len(r.Chunks), r.checkedBatches)
	if summary {
		checked = "header, footer and producers"
	}
	_, err := fmt.Fprintf(w, "\nchecked %s: %d faults\n", checked, len(r.Faults))
	return err
}

func shown(text, encoded *string) string {
	switch {
	case text != nil:
		return fmt.Sprintf("%q", *text)
	case encoded != nil:
		return "base64:" + *encoded
	}
	return "null"
}
