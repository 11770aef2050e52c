// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varve/varve/internal/memnet"
)

// Topics of a history of transactions.
const (
	txnSource = "source" // plain records, one after the other
	txnMoved  = "moved"  // what the movers make of them
	txnAtomic = "atomic" // each transaction puts one record into every partition
)

// moversGroup is whose offsets the movers move.
const moversGroup = "movers"

// txnPartitions is how many partitions each of them has.
const txnPartitions = 3

// txnRun is a history of transactions: movers consume, transform and produce with the group's offsets in the same transaction; writers put
// a record into every partition. Some transactions they abort. Readers of what is committed look on.
type txnRun struct {
	*run
	records int
	places  map[string][]string // where the records of txnMoved are at the end, by value, and who wrote them

	mu      sync.Mutex
	outcome map[string]string // of the writers' transactions, by value
	seen    map[string]int    // what the reader that looks on was given, by topic, partition and value
	moved   int               // of those: records of txnMoved
}

// RunTransactions plays a seed's history of transactions under its faults and checks that each is seen as a whole or not at all (S14, S15),
// that what was fenced has no effect (S16), and that records and offsets move together: each record of the source arrives once (S23).
func RunTransactions(t testing.TB, seed uint64, knobs Knobs, cover *Coverage) {
	w := newWorld(t, seed, knobs, cover)
	w.static["offsets.topic.num.partitions"], w.static["group.initial.rebalance.delay.ms"] = "7", "0"
	r := &txnRun{
		run:     &run{w: w, h: newHistory(w), raw: newRawClient(w, "checker", 40*time.Second), parts: map[string][]part{}},
		records: 150, places: map[string][]string{}, outcome: map[string]string{}, seen: map[string]int{},
	}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	life, die := context.WithCancel(context.Background())
	var keeper, storm, clients, reader sync.WaitGroup
	for _, m := range w.machines {
		keeper.Go(func() { w.keep(life, m) })
	}
	r.setUpTxns()
	working, stop := context.WithCancel(ctx)
	reading, stopReading := context.WithCancel(ctx)
	faults, stopFaults := context.WithCancel(ctx)
	if knobs.several() {
		storm.Go(func() { w.nemeses(faults) })
		storm.Go(func() { w.nemeses(faults) })
	} else {
		storm.Go(func() { w.nemesis(faults, w.machines[0]) })
	}
	if knobs.NetFaults {
		w.net.SetFaults(memnet.Faults{DelayMin: latency, DelayMax: 5 * time.Millisecond, Cut: 0.002, LoseReply: 0.003})
	}
	reader.Go(func() { r.watchCommitted(reading) })
	for i := range 2 {
		clients.Go(func() { r.move(working, i) })
		clients.Go(func() { r.write(working, i) })
	}
	r.feed(ctx)
	stopFaults()
	storm.Wait()
	w.end()
	r.awaitMoved(ctx)
	stop()
	clients.Wait()
	r.checkTxns(ctx)
	stopReading()
	reader.Wait()
	r.raw.close()
	die()
	keeper.Wait()
	w.close(t)
}

func (r *txnRun) setUpTxns() {
	r.awaitNodes()
	configs := map[string]string{"retention.ms": "-1"}
	if k := &r.w.knobs; k.Tier {
		configs["internal.segment.bytes"], configs["segment.ms"] = strconv.Itoa(k.SegmentBytes), "2000"
		configs["local.retention.ms"] = strconv.Itoa(k.LocalMillis)
	}
	for _, topic := range []string{txnSource, txnMoved, txnAtomic} {
		r.createTopic(topic, txnPartitions, configs)
	}
}

// options are a client's of a host; every other one speaks the protocol in which a producer keeps its epoch. Nobody here loses what was committed, so a
// client that is told that it did must not go back by itself.
func (r *txnRun) options(host string, i int, o ...kgo.Opt) []kgo.Opt {
	o = append(append(r.clientOptions(host), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1), kgo.Dialer(r.unhurried(host)),
		kgo.ConsumeResetOffset(kgo.NoResetOffset())), o...)
	if r.classic(i) {
		o = append(o, kgo.MaxVersions(kversion.V3_7_0()))
	}
	return o
}

// unhurried takes time for a connection that is refused: the client asks again at once then, for ever at one instant of the bubble's clock.
func (r *txnRun) unhurried(host string) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := r.w.net.DialFunc(host)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			pauseFor(ctx, 20*time.Millisecond)
		}
		return c, err
	}
}

func (r *txnRun) classic(i int) bool { return (i+int(r.w.seed))%2 == 0 }

// feed puts the source's records in, slowly.
func (r *txnRun) feed(ctx context.Context) {
	c, err := kgo.NewClient(append(r.clientOptions("producer0"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		r.w.t.Fatal(err)
	}
	defer c.Close()
	r.producerID(ctx, c)
	for i := range r.records {
		if r.w.failed() {
			return
		}
		c.Produce(ctx, &kgo.Record{Topic: txnSource, Partition: int32(i % txnPartitions), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				r.w.failf("V8: feeding record %d: %v", i, err)
			}
		})
		pauseFor(ctx, 100*time.Millisecond+r.w.millis(200))
	}
	if err := c.Flush(ctx); err != nil {
		r.w.failf("V8: feeding: %v", err)
	}
}

// producerID has the client get its producer id before several of its goroutines ask for it at a time: it does so under a mutex, for which the
// clock of the bubble stands still.
func (r *txnRun) producerID(ctx context.Context, c *kgo.Client) bool {
	for ctx.Err() == nil {
		if _, _, err := c.ProducerID(ctx); err == nil {
			return true
		} else if !pauseFor(ctx, 100*time.Millisecond) {
			r.w.log.Info("sim: no producer id", "error", err)
		}
		if r.w.failed() {
			return false
		}
	}
	return false
}

// move keeps a mover going: an instance that fails, or aborts, is followed by the next, which fences it and begins where the group stands.
// Movers share the partitions by their numbers: a client that is a member of a group waits under a mutex, for which the bubble's clock stands still.
func (r *txnRun) move(ctx context.Context, i int) {
	rng := rand.New(rand.NewPCG(r.w.seed, uint64(500+i)))
	for ctx.Err() == nil && !r.w.failed() {
		c, err := kgo.NewClient(r.options(fmt.Sprintf("producer%d", i), i, kgo.TransactionalID(fmt.Sprintf("mover%d", i)), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.TransactionTimeout(15*time.Second), kgo.FetchMaxWait(time.Second))...)
		if err != nil {
			r.w.failf("a mover: %v", err)
			return
		}
		r.moveWith(ctx, c, i, rng)
		c.Close()
		pauseFor(ctx, 200*time.Millisecond)
	}
}

func (r *txnRun) moveWith(ctx context.Context, c *kgo.Client, i int, rng *rand.Rand) {
	if !r.producerID(ctx, c) { // from here on what an earlier instance left open has no effect
		return
	}
	from, ok := r.standing(ctx, c)
	if !ok {
		return
	}
	mine := map[int32]kgo.Offset{}
	for p, o := range from {
		if p%2 == i {
			mine[int32(p)] = kgo.NewOffset().At(o)
		}
	}
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{txnSource: mine})
	for ctx.Err() == nil && !r.w.failed() {
		pctx, cancel := context.WithTimeout(ctx, time.Second)
		fetches := c.PollRecords(pctx, 1+rng.IntN(8))
		cancel()
		r.noneLost("a mover", fetches)
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		if !r.producerID(ctx, c) || c.BeginTransaction() != nil {
			return
		}
		sent := r.moveRecords(ctx, c, records, rng)
		commit := sent && r.commitMoved(ctx, c, i, records) && rng.IntN(5) > 0
		err := c.EndTransaction(ctx, kgo.TransactionEndTry(commit))
		r.w.cover.hit(TransactionEnded)
		if err != nil || !commit {
			return
		}
	}
}

// noneLost fails when a client is told that what it stands at, or has read, is not there (S27).
func (r *txnRun) noneLost(who string, fetches kgo.Fetches) {
	fetches.EachError(func(topic string, partition int32, err error) {
		if lost := (*kgo.ErrDataLoss)(nil); errors.As(err, &lost) || errors.Is(err, kerr.OffsetOutOfRange) {
			r.w.failf("S27: %s is told of %s-%d: %v", who, topic, partition, err)
		}
	})
}

func (r *txnRun) moveRecords(ctx context.Context, c *kgo.Client, records []*kgo.Record, rng *rand.Rand) bool {
	var mu sync.Mutex
	sent := 0
	for _, rec := range records {
		c.Produce(ctx, &kgo.Record{Topic: txnMoved, Partition: int32(rng.IntN(txnPartitions)), Value: rec.Value}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				sent++
			}
		})
	}
	err := c.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	return err == nil && sent == len(records)
}

// commitMoved makes where the group then stands part of the transaction.
func (r *txnRun) commitMoved(ctx context.Context, c *kgo.Client, i int, records []*kgo.Record) bool {
	id, epoch, err := c.ProducerID(ctx)
	if err != nil {
		return false
	}
	name := fmt.Sprintf("mover%d", i)
	if r.classic(i) {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = name, id, epoch, moversGroup
		if resp, err := add.RequestWith(ctx, c); err != nil || resp.ErrorCode != 0 {
			return false
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = name, id, epoch, moversGroup, -1
	next := map[int32]int64{}
	for _, rec := range records {
		next[rec.Partition] = max(next[rec.Partition], rec.Offset+1)
	}
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = txnSource, r.parts[txnSource][0].id.Topic
	for partition, offset := range next {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = partition, offset
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c)
	if err != nil || len(resp.Topics) != 1 {
		return false
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return false
		}
	}
	return true
}

// standing is where the movers' group stands in each partition, once no transaction is about to change that.
func (r *txnRun) standing(ctx context.Context, c *kgo.Client) (offsets [txnPartitions]int64, ok bool) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	req.Group = moversGroup
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = moversGroup
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID, topic.Partitions = txnSource, r.parts[txnSource][0].id.Topic, []int32{0, 1, 2}
	g.Topics = append(g.Topics, topic)
	req.Groups = append(req.Groups, g)
	for ctx.Err() == nil && !r.w.failed() {
		resp, err := req.RequestWith(ctx, c)
		ok = err == nil && len(resp.Groups) == 1 && resp.Groups[0].ErrorCode == 0 && len(resp.Groups[0].Topics) == 1
		if ok {
			for _, p := range resp.Groups[0].Topics[0].Partitions {
				ok = ok && p.ErrorCode == 0
				offsets[p.Partition] = max(p.Offset, 0)
			}
		}
		if ok {
			return offsets, true
		}
		pauseFor(ctx, 100*time.Millisecond)
	}
	return offsets, false
}

// write puts a record into every partition, transaction by transaction, and remembers what became of each.
func (r *txnRun) write(ctx context.Context, i int) {
	rng := rand.New(rand.NewPCG(r.w.seed, uint64(700+i)))
	for life := 0; ctx.Err() == nil && !r.w.failed(); life++ {
		c, err := kgo.NewClient(r.options(fmt.Sprintf("producer%d", i), i, kgo.TransactionalID(fmt.Sprintf("writer%d", i)), kgo.TransactionTimeout(15*time.Second))...)
		if err != nil {
			r.w.failf("a writer: %v", err)
			return
		}
		for n := 0; r.writeOne(ctx, c, fmt.Sprintf("%d.%d.%d", i, life, n), rng); n++ {
			pauseFor(ctx, r.w.millis(500))
		}
		c.Close()
		pauseFor(ctx, 200*time.Millisecond)
	}
}

// writeOne tells whether the client can go on.
func (r *txnRun) writeOne(ctx context.Context, c *kgo.Client, value string, rng *rand.Rand) bool {
	if ctx.Err() != nil || r.w.failed() || !r.producerID(ctx, c) || c.BeginTransaction() != nil {
		return false
	}
	if rng.IntN(12) == 0 {
		// It is gone in the middle: its successor, or time, ends what it leaves open.
		for p := range int32(txnPartitions) {
			c.Produce(ctx, &kgo.Record{Topic: txnAtomic, Partition: p, Value: []byte(value)}, func(*kgo.Record, error) {})
		}
		pauseFor(ctx, r.w.millis(200))
		r.became(value, "aborted")
		return false
	}
	var mu sync.Mutex
	sent := 0
	for p := range int32(txnPartitions) {
		c.Produce(ctx, &kgo.Record{Topic: txnAtomic, Partition: p, Value: []byte(value)}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				sent++
			}
		})
	}
	r.became(value, "unknown")
	err := c.Flush(ctx)
	mu.Lock()
	commit := err == nil && sent == txnPartitions && rng.IntN(4) > 0
	mu.Unlock()
	err = c.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	switch {
	case err == nil && commit:
		r.became(value, "committed")
	case !commit: // nobody has asked for its commit
		r.became(value, "aborted")
	}
	r.w.cover.hit(TransactionEnded)
	return err == nil
}

func (r *txnRun) became(value, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome[value] = outcome
}

// watchCommitted reads what is committed as it comes.
func (r *txnRun) watchCommitted(ctx context.Context) {
	c, err := kgo.NewClient(r.options("consumer", 1, kgo.ConsumeTopics(txnMoved, txnAtomic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second), kgo.FetchMaxPartitionBytes(8192))...)
	if err != nil {
		r.w.failf("the reader: %v", err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		r.noneLost("the reader", fetches)
		fetches.EachRecord(func(rec *kgo.Record) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[fmt.Sprintf("%s-%d %s", rec.Topic, rec.Partition, rec.Value)]++
			if rec.Topic == txnMoved {
				r.moved++
			}
		})
	}
}

// awaitMoved waits until the movers have moved everything.
func (r *txnRun) awaitMoved(ctx context.Context) {
	for began := time.Now(); !r.w.failed(); pauseFor(ctx, 200*time.Millisecond) {
		r.mu.Lock()
		moved := r.moved
		r.mu.Unlock()
		if moved >= r.records && r.committed(ctx) == r.records {
			return
		}
		if time.Since(began) > patience {
			r.w.failf("V3: %v after the last fault %d records of %d are moved, the group stands at %d", patience, moved, r.records, r.committed(ctx))
		}
	}
}

// committed is where the movers' group stands in all partitions together.
func (r *txnRun) committed(ctx context.Context) (sum int) {
	c, err := kgo.NewClient(r.clientOptions("checker")...)
	if err != nil {
		r.w.t.Fatal(err)
	}
	defer c.Close()
	offsets, _ := r.standing(ctx, c)
	for _, o := range offsets {
		sum += int(o)
	}
	return sum
}

// checkTxns reads all once more and compares.
func (r *txnRun) checkTxns(ctx context.Context) {
	if r.w.failed() {
		return
	}
	r.awaitNothingOpen(ctx)
	final := r.readCommitted(ctx)
	moved, atomic := map[string]int{}, map[string][]int{}
	for key, n := range final {
		var topic, value string
		var partition int
		if _, err := fmt.Sscanf(key, "%s %s", &topic, &value); err != nil {
			r.w.failf("a strange record: %q", key)
		}
		name, index := topic[:len(topic)-2], topic[len(topic)-1:]
		partition, _ = strconv.Atoi(index)
		if name == txnMoved {
			moved[value] += n
			continue
		}
		if atomic[value] == nil {
			atomic[value] = make([]int, txnPartitions)
		}
		atomic[value][partition] += n
	}
	for i := range r.records {
		if n := moved[fmt.Sprint(i)]; n != 1 {
			r.w.failf("S15: record %d of the source was moved %d times: %q", i, n, r.places[fmt.Sprint(i)])
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for value, counts := range atomic {
		if r.outcome[value] == "aborted" {
			r.w.failf("S14: transaction %s was aborted, its records are read: %v", value, counts)
		}
		if slices.Min(counts) != 1 || slices.Max(counts) != 1 {
			r.w.failf("S15: transaction %s is seen in part: %v", value, counts)
		}
	}
	for value, outcome := range r.outcome {
		if outcome == "committed" && atomic[value] == nil {
			r.w.failf("S15: transaction %s was committed, none of its records is read", value)
		}
	}
	for key, n := range r.seen {
		if final[key] != n {
			r.w.failf("S14: %s was given to a reader %d times, at the end it is there %d times", key, n, final[key])
		}
	}
}

// awaitNothingOpen waits until the last stable offset is the end, as no transaction may stay open beyond its time (V3).
func (r *txnRun) awaitNothingOpen(ctx context.Context) {
	for began := time.Now(); ; pauseFor(ctx, 200*time.Millisecond) {
		open := ""
		for _, topic := range []string{txnMoved, txnAtomic} {
			for _, p := range r.parts[topic] {
				m, ok := r.w.marks(p.id)
				if !ok || m.LSO != m.HW || m.HW != m.LogEnd {
					open = fmt.Sprintf("%s: %+v", p, m)
				}
			}
		}
		if open == "" || r.w.failed() {
			return
		}
		if time.Since(began) > patience {
			r.w.failf("V3: a transaction is open for %v: %s", patience, open)
		}
	}
}

// readCommitted reads from the start to the end, by topic, partition and value.
func (r *txnRun) readCommitted(ctx context.Context) map[string]int {
	ends := map[string]int64{}
	for _, topic := range []string{txnMoved, txnAtomic} {
		for _, p := range r.parts[topic] {
			_, hw := r.bounds(p)
			ends[p.String()] = int64(hw)
		}
	}
	c, err := kgo.NewClient(r.options("consumer", 1, kgo.ConsumeTopics(txnMoved, txnAtomic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))...)
	if err != nil {
		r.w.t.Fatal(err)
	}
	defer c.Close()
	found := map[string]int{}
	for began := time.Now(); len(ends) > 0 && !r.w.failed(); {
		pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		fetches := c.PollFetches(pctx)
		r.noneLost("the last reader", fetches)
		fetches.EachRecord(func(rec *kgo.Record) {
			name := fmt.Sprintf("%s-%d", rec.Topic, rec.Partition)
			if !rec.Attrs.IsControl() {
				found[name+" "+string(rec.Value)]++
				if rec.Topic == txnMoved {
					v := string(rec.Value)
					r.places[v] = append(r.places[v], fmt.Sprintf("%s at %d by producer %d in epoch %d", name, rec.Offset, rec.ProducerID, rec.ProducerEpoch))
				}
			}
			if rec.Offset >= ends[name]-1 {
				delete(ends, name)
			}
		})
		cancel()
		for name, end := range ends {
			if end == 0 {
				delete(ends, name)
			}
		}
		if time.Since(began) > patience {
			r.w.failf("V8: %v of reading what is committed: these ends are not reached: %v", patience, ends)
		}
	}
	return found
}
