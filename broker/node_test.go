// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
)

const testNode = 1

// node is a broker over a file system, a metadata store and a bucket in memory. It works inside a synctest bubble.
type node struct {
	t        testing.TB
	server   *memory.Server
	kv       *memory.Client
	meta     *metadata.Store
	db       *hotlog.DB
	store    *objstore.Faulty
	archiver *tiering.Archiver
	broker   *Broker
	log      testenv.Log
	gate     atomic.Pointer[chan struct{}] // syncs of the disk wait until it is closed
}

// startNode starts a node that ends with the test.
func startNode(t testing.TB, static map[string]string) *node {
	t.Helper()
	n := &node{t: t, server: memory.New()}
	logger := slog.New(slog.NewTextHandler(&n.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	n.kv = n.server.Client()
	var err error
	n.meta, err = metadata.Open(ctx, n.kv, metadata.Options{NodeID: testNode, Logger: logger, StaticConfig: static, CompactEvery: -1})
	check(t, err)
	n.db, err = hotlog.Open("data", hotlog.Options{FS: hotlog.NewMemFS().FS(func() {
		if c := n.gate.Load(); c != nil {
			<-*c
		}
	}), Logger: logger})
	check(t, err)
	check(t, n.db.SetIdentity(n.meta.ClusterID(), testNode))
	n.store = objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
	reader := tiering.NewReader(tiering.ReaderConfig{Logger: logger}, n.store)
	n.archiver = tiering.NewArchiver(tiering.Config{Logger: logger}, n.store, n.meta)
	initial, err := config.ResolveBroker(static, nil, nil)
	check(t, err)
	n.broker, err = New(Config{Node: metadata.BrokerInfo{Node: testNode}, Initial: initial, Logger: logger}, n.meta, []*hotlog.DB{n.db},
		Tier{Archiver: n.archiver, Reader: reader, Meta: n.meta})
	check(t, err)
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{n.meta.Run, n.archiver.Run, n.broker.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a part of the node ended: %v; log:\n%s", err, n.log.String())
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		check(t, n.broker.Leave(context.Background()))
		check(t, reader.Close())
		check(t, n.db.Close())
		check(t, n.store.Close())
		check(t, n.kv.Close())
	})
	n.await("the node to register", n.broker.MayServe)
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await polls, for a minute at most.
func (n *node) await(what string, cond func() bool) {
	n.t.Helper()
	for range 12000 {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	n.t.Fatalf("waited in vain for %s; log:\n%s", what, n.log.String())
}

func (n *node) create(name string, overrides map[string]string) *metadata.Topic {
	n.t.Helper()
	topic, err := n.meta.CreateTopic(context.Background(), metadata.TopicSpec{
		Name: name, Overrides: overrides, Partitions: [][]record.NodeID{{testNode}},
	})
	check(n.t, err)
	return topic
}

// led waits until the topic's partition is led.
func (n *node) led(topic *metadata.Topic) *Partition {
	n.t.Helper()
	var p *Partition
	n.await(topic.Name+" to be led", func() (ok bool) {
		var err error
		p, err = n.broker.Partition(record.PartitionID{Topic: topic.ID})
		return err == nil && p.Marks().Leading
	})
	return p
}

func (n *node) topic(name string, overrides map[string]string) *Partition {
	n.t.Helper()
	return n.led(n.create(name, overrides))
}

// built is a batch with one record for each timestamp.
func built(t testing.TB, producer record.Producer, timestamps ...int64) record.Batch {
	t.Helper()
	var b record.Builder
	if producer.ID >= 0 {
		b.SetProducer(producer)
	}
	for _, ts := range timestamps {
		b.Add(ts, nil, fmt.Append(nil, "at ", ts))
	}
	batch, err := b.Build()
	check(t, err)
	return batch
}

// wide is built with a key of some size on each record.
func wide(t testing.TB, bytes int, timestamps ...int64) record.Batch {
	t.Helper()
	var b record.Builder
	for _, ts := range timestamps {
		b.Add(ts, make([]byte, bytes), fmt.Append(nil, "at ", ts))
	}
	batch, err := b.Build()
	check(t, err)
	return batch
}

var nobody = record.Producer{ID: record.NoProducerID}

// start appends without waiting.
func (p *Partition) start(batch record.Batch, acks int16) (*Wait, *Pending) {
	w, pend := new(Wait), new(Pending)
	w.Init(1)
	p.Append(batch, AppendOptions{Acks: acks}, w, pend)
	return w, pend
}

// append appends and waits for the outcome.
func (p *Partition) append(t testing.TB, batch record.Batch, acks int16) *Pending {
	t.Helper()
	w, pend := p.start(batch, acks)
	<-w.C()
	return pend
}

// must is append that has to succeed.
func (p *Partition) must(t testing.TB, batch record.Batch) record.Offset {
	t.Helper()
	pend := p.append(t, batch, -1)
	check(t, pend.Err)
	return pend.Base
}

// readAll reads from an offset to the high watermark, wherever the data is.
func (p *Partition) readAll(from record.Offset) (values []string, err error) {
	for {
		var res ReadResult
		req := ReadRequest{Offset: from, MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch}
		if err := p.Read(&req, &res); err != nil {
			return values, err
		}
		if res.Cold {
			if err := p.ReadCold(context.Background(), &req, &res); err != nil {
				return values, err
			}
		}
		if len(res.Data) == 0 {
			if !res.Bounded {
				return values, errors.New("no data and no end")
			}
			return values, nil
		}
		for rest := res.Data; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.Split(rest); err != nil {
				return values, err
			}
			if err := b.Check(); err != nil {
				return values, err
			}
			if err := b.Each(func(r *record.Record) bool {
				if r.Offset >= from {
					values = append(values, string(r.Value))
				}
				return true
			}); err != nil {
				return values, err
			}
			from = b.NextOffset()
		}
	}
}
