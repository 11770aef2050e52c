// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The topics. What each promises is in the history.
const (
	safe   = "safe"   // three replicas, acks=all, idempotent producers
	cut    = "cut"    // the same, with DeleteRecords
	loose  = "loose"  // three replicas, acks=1
	single = "single" // one replica, acks=all: with acks=1 a move in which the leader fails may lose the last records, as it has two replicas then
)

var promises = map[string]promise{
	safe:   {durable: true, idempotent: true, replicas: nodes},
	cut:    {durable: true, idempotent: true, replicas: nodes, deletes: true},
	loose:  {replicas: nodes},
	single: {durable: true, replicas: 1},
}

// definite are the errors after which a record must not be there.
var definite = []error{kerr.InvalidRecord, kerr.CorruptMessage, kerr.MessageTooLarge, kerr.NotEnoughReplicas, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.OutOfOrderSequenceNumber, kerr.ThrottlingQuotaExceeded, kerr.PolicyViolation}

// route is where a partition is led, as far as anybody knows.
type route struct {
	topic [16]byte
	node  place
	epoch int32
	// replicas are those of the newest word, whatever its epoch.
	replicas []int32
}

// load is the clients.
type load struct {
	c       *cluster
	h       *history
	mu      sync.Mutex
	routes  map[part]route
	workers sync.WaitGroup
	// What stops: the producers first, in the end all.
	producing, all         context.Context
	stopProducing, stopAll context.CancelFunc
	producers              []*kgo.Client
	admin                  *kgo.Client
	keepers                []place // of what has one replica
}

func startLoad(t testing.TB, c *cluster, h *history, rnd *rand.Rand, keepers []place) *load {
	t.Helper()
	l := &load{c: c, h: h, routes: map[part]route{}, keepers: keepers}
	l.admin = l.client(t)
	h.promises = promises
	l.all, l.stopAll = context.WithCancel(context.Background())
	l.producing, l.stopProducing = context.WithCancel(l.all)
	t.Cleanup(func() { l.stopAll(); l.workers.Wait() })
	l.create(t, keepers)
	l.workers.Go(l.watchMetadata)
	for p := range l.h.parts() {
		l.workers.Go(func() { l.tail(p) })
	}
	idempotent := []kgo.Opt{kgo.ProducerLinger(0), kgo.UnknownTopicRetries(-1)}
	once := []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.RecordDeliveryTimeout(5 * time.Second)}
	l.produce(t, safe, 1, 4*time.Millisecond, idempotent...)
	l.produce(t, safe, 2, 9*time.Millisecond, append(idempotent, kgo.ProducerLinger(5*time.Millisecond))...)
	l.produce(t, cut, 3, 6*time.Millisecond, idempotent...)
	l.produce(t, loose, 4, 15*time.Millisecond, append(once, kgo.RequiredAcks(kgo.LeaderAck()))...)
	l.produce(t, single, 5, 15*time.Millisecond, once...)
	for i := range uint64(2) {
		own := rand.New(rand.NewPCG(rnd.Uint64(), i))
		l.workers.Go(func() { l.peek(own) })
	}
	own := rand.New(rand.NewPCG(rnd.Uint64(), 7))
	l.workers.Go(func() { l.deleteNowAndThen(own) })
	l.workers.Go(l.relive)
	return l
}

// parts are all partitions.
func (h *history) parts() map[part]promise {
	out := map[part]promise{}
	for topic, promise := range h.promises {
		for i := range int32(partitions) {
			out[part{topic, i}] = promise
		}
	}
	return out
}

func (l *load) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(l.c.bootstrap()...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DialTimeout(dialTimeout),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.ProduceRequestTimeout(3 * time.Second),
		kgo.RequestTimeoutOverhead(time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(1000),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// create makes the topics; those with one replica lie on the keepers, whose disks are not lost.
func (l *load) create(t testing.TB, keepers []place) {
	t.Helper()
	c := l.client(t)
	tiered := map[string]string{"segment.ms": "2000", "local.retention.ms": "1000"}
	for topic, promise := range promises {
		req := kmsg.NewPtrCreateTopicsRequest()
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, int16(promise.replicas)
		if promise.replicas == 1 {
			rt.NumPartitions, rt.ReplicationFactor = -1, -1
			for i := range int32(partitions) {
				a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
				a.Partition, a.Replicas = i, []int32{int32(keepers[int(i)%len(keepers)])}
				rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
			}
		}
		if topic == safe || topic == cut {
			for k, v := range tiered {
				rc := kmsg.NewCreateTopicsRequestTopicConfig()
				rc.Name, rc.Value = k, kadm.StringPtr(v)
				rt.Configs = append(rt.Configs, rc)
			}
		}
		req.Topics = append(req.Topics, rt)
		ctx, cancel := context.WithTimeout(context.Background(), recovery)
		resp, err := req.RequestWith(ctx, c)
		for ; err == nil; resp, err = req.RequestWith(ctx, c) {
			if err = kerr.ErrorForCode(resp.Topics[0].ErrorCode); !errors.Is(err, kerr.InvalidReplicationFactor) && !errors.Is(err, kerr.InvalidReplicaAssignment) {
				break // or a node has not heard of the others yet
			}
			sleep(ctx, 50*time.Millisecond)
		}
		cancel()
		if err != nil {
			t.Fatalf("create %s: %v", topic, err)
		}
	}
	c.Close()
}

// produce starts a producer of unique records for each partition of a topic in turn.
func (l *load) produce(t testing.TB, topic string, producer int, pause time.Duration, opts ...kgo.Opt) {
	t.Helper()
	c := l.client(t, opts...)
	l.producers = append(l.producers, c)
	filler := make([]byte, 300)
	l.workers.Go(func() {
		began := time.Now()
		for i := 0; l.producing.Err() == nil; i++ {
			p := part{topic, int32(i % partitions)}
			id := fmt.Sprintf("p%d-%d", producer, i)
			value := append([]byte(id+" "), filler[:(i*37)%len(filler)]...)
			// Event times go forward, with some that come late.
			at := time.Now().Add(-time.Duration((i*7919)%1000) * time.Millisecond).UnixMilli()
			s := &send{id: id, p: p, producer: producer, order: i, timestamp: at, hash: hashOf(value)}
			l.h.invoke(s)
			r := &kgo.Record{Topic: topic, Partition: p.index, Key: []byte(id), Value: value, Timestamp: time.UnixMilli(at)}
			c.Produce(context.Background(), r, func(r *kgo.Record, err error) { l.done(s, r, err) })
			if ahead := time.Duration(i)*pause - time.Since(began); ahead > 0 {
				time.Sleep(ahead)
			}
		}
	})
}

func (l *load) done(s *send, r *kgo.Record, err error) {
	switch {
	case err == nil:
		l.h.answer(s, stored, r.Offset, nil)
	case isDefinite(err) && !promises[s.p.topic].idempotent:
		l.h.answer(s, refused, -1, err)
	default:
		l.h.answer(s, unknown, -1, err)
		if promises[s.p.topic].idempotent && l.all.Err() == nil && !errors.Is(err, kgo.ErrClientClosed) {
			l.h.note("an idempotent producer gave up %q of %s: %v", s.id, s.p, err)
		}
	}
}

func isDefinite(err error) bool {
	for _, d := range definite {
		if errors.Is(err, d) {
			return true
		}
	}
	return false
}

// conns are one worker's connections.
type conns map[place]*raw

func (l *load) conn(c conns, n place) *raw {
	if c[n] == nil {
		c[n] = &raw{address: l.c.node[n].Bootstrap()}
	}
	return c[n]
}

func (c conns) close() {
	for _, r := range c {
		r.close()
	}
}

// watchMetadata keeps the routes: of what the nodes tell the highest epoch counts.
func (l *load) watchMetadata() {
	c := conns{}
	defer c.close()
	var names []string
	for topic := range promises {
		names = append(names, topic)
	}
	for i := 0; l.all.Err() == nil; i++ {
		n := place(1 + i%nodes)
		invoked := l.h.now()
		topics, err := l.conn(c, n).metadata(names)
		returned := l.h.now()
		if err == nil {
			l.learn(n, topics, invoked, returned)
		}
		sleep(l.all, 70*time.Millisecond)
	}
}

func (l *load) learn(n place, topics map[string]topicState, invoked, returned int64) {
	var seen []seenEpoch
	l.mu.Lock()
	for name, topic := range topics {
		for _, mp := range topic.partitions {
			p := part{name, mp.Partition}
			seen = append(seen, seenEpoch{p, int(n), invoked, returned, mp.Leader, mp.LeaderEpoch})
			r, ok := l.routes[p]
			if r.replicas = mp.Replicas; ok {
				l.routes[p] = r
			}
			if mp.Leader > 0 && (!ok || mp.LeaderEpoch > r.epoch || mp.LeaderEpoch == r.epoch && mp.Leader == int32(r.node)) {
				l.routes[p] = route{topic.id, place(mp.Leader), mp.LeaderEpoch, mp.Replicas}
			}
		}
	}
	l.mu.Unlock()
	l.h.learned(seen)
}

func (l *load) route(p part) (route, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.routes[p]
	return r, ok
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// fetch fetches once from the leader that is known; nil: no answer.
func (l *load) fetch(c conns, p part, offset int64, maxBytes, wait int32, last bool) *fetch {
	r, ok := l.route(p)
	if !ok {
		return nil
	}
	f := &fetch{p: p, node: int(r.node), epoch: r.epoch, offset: offset, invoked: l.h.now(), last: last}
	if l.conn(c, r.node).fetch(f, r.topic, maxBytes, wait) != nil {
		return nil
	}
	l.h.fetched(f)
	return f
}

// tail reads a partition as it grows.
func (l *load) tail(p part) {
	c := conns{}
	defer c.close()
	for next := int64(0); l.all.Err() == nil; {
		f := l.fetch(c, p, next, fetchBytes, 300, false)
		switch {
		case f == nil || f.code != codeNone && f.code != codeOutOfRange:
			sleep(l.all, 50*time.Millisecond)
		case f.code == codeOutOfRange:
			if at, ok := l.list(c, p, earliest); ok && at.code == codeNone {
				next = max(next, at.offset)
			}
			sleep(l.all, 50*time.Millisecond)
		case len(f.batches) > 0:
			next = f.batches[len(f.batches)-1].last + 1
		}
	}
}

func (l *load) list(c conns, p part, timestamp int64) (lookup, bool) {
	r, ok := l.route(p)
	if !ok {
		return lookup{}, false
	}
	a := lookup{p: p, node: int(r.node), timestamp: timestamp, invoked: l.h.now()}
	if l.conn(c, r.node).list(&a, r.epoch) != nil {
		return a, false
	}
	l.h.looked(a)
	return a, true
}

// askEpoch asks where an earlier epoch ends.
func (l *load) askEpoch(c conns, p part, back int32) {
	r, ok := l.route(p)
	if !ok || r.epoch < back {
		return
	}
	e := epochEnd{p: p, node: int(r.node), asked: r.epoch - back, leads: r.epoch, invoked: l.h.now()}
	if l.conn(c, r.node).epochEnd(&e) == nil {
		l.h.ended(e)
	}
}

// peek reads here and there, and looks up times.
func (l *load) peek(rnd *rand.Rand) {
	c := conns{}
	defer c.close()
	var parts []part
	for p := range l.h.parts() {
		parts = append(parts, p)
	}
	for l.all.Err() == nil {
		p := parts[rnd.IntN(len(parts))]
		start, ok := l.list(c, p, earliest)
		end, ok2 := l.list(c, p, latest)
		if ok && ok2 && start.code == codeNone && end.code == codeNone && end.offset > start.offset {
			o := start.offset + rnd.Int64N(end.offset-start.offset)
			l.fetch(c, p, o, int32(1)<<rnd.IntN(17), 100, false)
			l.list(c, p, time.Now().Add(-time.Duration(rnd.Int64N(int64(40*time.Second)))).UnixMilli())
			switch rnd.IntN(4) {
			case 0:
				l.list(c, p, maxTimestamp)
			case 1:
				l.askEpoch(c, p, 1+rnd.Int32N(3))
			}
			if rnd.IntN(4) == 0 {
				l.fetch(c, p, end.offset+100000, 1024, 0, false)
			}
		}
		sleep(l.all, 40*time.Millisecond)
	}
}

// deleteNowAndThen moves the log start of a partition a little.
func (l *load) deleteNowAndThen(rnd *rand.Rand) {
	c, err := kgo.NewClient(kgo.SeedBrokers(l.c.bootstrap()...), kgo.MetadataMinAge(100*time.Millisecond), kgo.DialTimeout(dialTimeout))
	if err != nil {
		l.h.note("%v", err)
		return
	}
	defer c.Close()
	own := conns{}
	defer own.close()
	adm := kadm.NewClient(c)
	for l.producing.Err() == nil {
		sleep(l.producing, 300*time.Millisecond)
		p := part{cut, rnd.Int32N(partitions)}
		start, ok := l.list(own, p, earliest)
		end, ok2 := l.list(own, p, latest)
		if !ok || !ok2 || start.code != codeNone || end.code != codeNone || end.offset <= start.offset {
			continue
		}
		d := &deletion{p: p, to: start.offset + rnd.Int64N(end.offset-start.offset)/3}
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: p.topic, Partition: p.index, At: d.to, LeaderEpoch: -1})
		l.h.deleting(d)
		one, cancel := context.WithTimeout(l.all, 3*time.Second)
		answers, err := adm.DeleteRecords(one, offsets)
		cancel()
		if a, found := answers.Lookup(p.topic, p.index); err == nil && found && a.Err == nil {
			l.h.deleted(d, a.LowWatermark, true)
		}
	}
}
