// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/record"
)

// producer is a real client that logs what it sends.
type producer struct {
	r          *run
	index      int
	idempotent bool
	client     *kgo.Client
	rng        *rand.Rand
	sent       int
	// mistaken: the client met the topic that was deleted, at a node that is cut off from the metadata store, before the one that was made. Then it
	// sends nothing to either.
	mistaken atomic.Bool
}

var codecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}

// newProducer: index 2 and above send without idempotence, with acks=1.
func (r *run) newProducer(index int) *producer {
	p := &producer{r: r, index: index, idempotent: index < 2, rng: rand.New(rand.NewPCG(r.w.seed, uint64(100+index)))}
	o := append(r.clientOptions(fmt.Sprintf("producer%d", index)), kgo.WithHooks(&throttled{r, ProducerThrottled}),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(int32(4096<<(index%3))), kgo.UnknownTopicRetries(-1),
		kgo.ProducerLinger(time.Duration(r.w.seed%3)*time.Millisecond), kgo.ProducerBatchCompression(codecs[(int(r.w.seed)+index)%len(codecs)]))
	if !p.idempotent {
		o = append(o, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if r.w.said == nil && os.Getenv("VARVE_SIM_LOG") != "" {
		o = append(o, kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, func() string { return fmt.Sprintf("producer%d ", index) })))
	}
	var err error
	if p.client, err = kgo.NewClient(o...); err != nil {
		r.w.t.Fatal(err)
	}
	if p.idempotent && r.w.knobs.several() {
		p.begin()
	}
	return p
}

// begin gets the producer's id. The client asks for it under a mutex, and in a bubble the clock stands still while another of its
// goroutines, that of another node, waits for that.
func (p *producer) begin() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, _, err := p.client.ProducerID(ctx)
		switch {
		case err == nil || p.r.w.failed():
			return
		case ctx.Err() != nil:
			p.r.w.failf("V8: producer %d waits for its id for %v: %v", p.index, patience, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (r *run) clientOptions(host string) []kgo.Opt {
	var seeds []string
	for _, m := range r.w.machines {
		seeds = append(seeds, addressOf(m.id))
	}
	return []kgo.Opt{
		kgo.ClientID(throttledID), kgo.SeedBrokers(seeds...), kgo.Dialer(r.w.net.DialFunc(host)), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		// A node that dies may have accepted a connection on which it answers nothing: by default the client takes that for missing SASL.
		kgo.AlwaysRetryEOF(),
		kgo.RequestTimeoutOverhead(5 * time.Second), kgo.RequestRetries(10_000), kgo.WithDecompressor(bubbleFree),
	}
}

// send produces one record and does not wait.
func (p *producer) send(ctx context.Context, to part, timestamp int64, size int) {
	p.sent++
	s := &send{p: to, key: fmt.Sprintf("%s/%d/%d/%d", to.topic, to.id.Index, p.index, p.sent), producer: p.index, idempotent: p.idempotent, timestamp: timestamp}
	s.weak = !p.idempotent && p.r.w.knobs.several()
	if to.topic == scratch {
		s.key += fmt.Sprintf("/%d", p.r.scratchLife)
	}
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(p.rng.IntN(24)) // so that compression has something to do
	}
	s.hash = p.r.h.hash(value)
	p.r.h.invoke(s)
	p.r.w.addWaiting(1)
	r := &kgo.Record{Topic: to.topic, Partition: to.id.Index, Timestamp: time.UnixMilli(timestamp), Key: []byte(s.key), Value: value}
	p.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		p.r.w.addWaiting(-1)
		p.r.h.answer(s, record.Offset(r.Offset), err)
		switch {
		case err == nil || !p.idempotent || ctx.Err() != nil:
		case to.topic == scratch && errors.Is(err, kerr.UnknownTopicID):
			p.mistaken.Store(true)
		default:
			p.r.w.failf("V8: %q to %s: %v", s.key, to, err)
		}
	})
}

// flush waits until everything sent is decided.
func (p *producer) flush(ctx context.Context) {
	fctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.client.Flush(fctx); err != nil && ctx.Err() == nil {
		p.r.w.failf("V8: producer %d waits for its acknowledgements for %v: %v", p.index, patience, err)
	}
}

func (w *World) addWaiting(n int) {
	w.mu.Lock()
	w.mu.waiting += n
	w.mu.Unlock()
}

// consume reads everything from the start as it comes, until ctx ends: in order, without a gap that nobody asked for (S27, S2, S7).
func (r *run) consume(ctx context.Context) {
	o := append(r.clientOptions("consumer"), kgo.WithHooks(&throttled{r, ConsumerThrottled}))
	if r.w.knobs.several() && r.w.seed%2 == 0 {
		// It reads there, whoever leads. The client stays with a replica that it was pointed to even when that answers that it is none any more.
		o = append(o, kgo.Rack("rack2"), kgo.RecheckPreferredReplicaInterval(2*time.Second))
	}
	if r.w.said == nil && os.Getenv("VARVE_SIM_LOG") != "" {
		o = append(o, kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, func() string { return "consumer " + time.Since(epoch).String() + " " })))
	}
	c, err := kgo.NewClient(append(o, kgo.ConsumeTopics(own, mix), kgo.FetchMaxWait(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(8192))...)
	if err != nil {
		r.w.t.Error(err)
		return
	}
	defer c.Close()
	next := map[part]record.Offset{}
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			var lost *kgo.ErrDataLoss
			if errors.As(err, &lost) && !r.h.mayBeGone(r.part(topic, partition), record.Offset(lost.ResetTo)) {
				r.w.failf("S7: the consumer of %s-%d was told of lost data: %v", topic, partition, err)
			}
		})
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if n := len(f.Records); n > 0 && f.Records[n-1].Offset >= f.HighWatermark {
				r.w.failf("S27: the consumer of %s-%d was given %d, the high watermark is %d", f.Topic, f.Partition, f.Records[n-1].Offset, f.HighWatermark)
			}
		})
		fetches.EachRecord(func(rec *kgo.Record) {
			p, o := r.part(rec.Topic, rec.Partition), record.Offset(rec.Offset)
			switch want := next[p]; {
			case o < want:
				r.w.failf("S7: the consumer of %s was given %d, then %d", p, want-1, o)
			case o > want && !r.h.mayBeGone(p, o):
				r.w.failf("S27: the consumer of %s was given %d instead of %d", p, o, want)
			}
			next[p] = o + 1
			r.h.consumed(p, o+1)
			r.h.sawRecord(p, o, rec.Timestamp.UnixMilli(), rec.Key, rec.Value)
		})
	}
}
