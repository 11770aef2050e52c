// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type settings struct {
	members, partitions, rounds int
	heartbeat, limit            time.Duration
}

func main() {
	var s settings
	flag.IntVar(&s.members, "members", 100, "`N` members")
	flag.IntVar(&s.partitions, "partitions", 1000, "`N` partitions of the topic that they read")
	flag.IntVar(&s.rounds, "rounds", 3, "`N` times, the brokers in turn, after one that does not count")
	flag.DurationVar(&s.heartbeat, "heartbeat", 250*time.Millisecond, "how often a member asks whether something has changed")
	flag.DurationVar(&s.limit, "limit", 2*time.Minute, "how long a group may take until it is stable")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(&s, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "rebalance:", err)
		os.Exit(1)
	}
}

// settle is longer than group.consumer.assignment.interval.ms, 1 s: what follows shall not wait for what is left of it.
const settle = 2 * time.Second

// broker is one system under test.
type broker struct {
	name, seed, topic string
	topicID           [16]byte
	took              map[string][]time.Duration // by what was measured
}

// measured are the figures in their order.
var measured = []string{
	"classic: all join", "classic: one more joins", "classic: one leaves",
	"consumer: all join", "consumer: one more joins", "consumer: one leaves",
}

func run(s *settings, targets []string) error {
	ctx := context.Background()
	var brokers []*broker
	for _, t := range targets {
		name, seed, ok := strings.Cut(t, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=HOST:PORT", t)
		}
		b := &broker{name: name, seed: seed, topic: fmt.Sprintf("rebalance-%08x", rand.Uint32()), took: map[string][]time.Duration{}}
		if err := b.createTopic(ctx, s.partitions); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer b.deleteTopic(ctx)
		brokers = append(brokers, b)
	}
	for round := range s.rounds + 1 {
		for _, b := range brokers {
			for _, kind := range []string{"classic", "consumer"} {
				if err := b.measure(ctx, s, kind, round > 0); err != nil {
					return fmt.Errorf("%s, %s: %w", b.name, kind, err)
				}
			}
		}
	}
	report(brokers)
	return nil
}

// measure lets a group come together, grow and shrink.
func (b *broker) measure(ctx context.Context, s *settings, kind string, counts bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*s.limit)
	defer cancel()
	g := &gathering{partitions: s.partitions, changed: make(chan struct{}, 1), members: map[*member]holding{}}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	group := fmt.Sprintf("rebalance-%s-%08x", kind, rand.Uint32())
	failed := make(chan error, s.members+1)
	start := func() (*member, error) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.seed), kgo.ClientID("rebalance"))
		if err != nil {
			return nil, err
		}
		m := &member{b: b, g: g, s: s, cl: cl, group: group, leave: make(chan struct{})}
		g.expect(m)
		running.Go(func() {
			defer cl.Close()
			loop := m.classic
			if kind == "consumer" {
				loop = m.consumer
			}
			if err := loop(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
		return m, nil
	}
	stable := func(what string, began time.Time) error {
		if err := g.await(ctx, s.limit, failed); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if name := kind + ": " + what; counts {
			b.took[name] = append(b.took[name], time.Since(began))
		}
		return nil
	}
	began := time.Now()
	for range s.members {
		if _, err := start(); err != nil {
			return err
		}
	}
	if err := stable("all join", began); err != nil {
		return err
	}
	time.Sleep(settle)
	began = time.Now()
	last, err := start()
	if err != nil {
		return err
	}
	if err := stable("one more joins", began); err != nil {
		return err
	}
	time.Sleep(settle)
	began = time.Now()
	g.dismiss(last)
	close(last.leave)
	return stable("one leaves", began)
}

func (b *broker) createTopic(ctx context.Context, partitions int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seed))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60_000
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: b.topic, NumPartitions: int32(partitions), ReplicationFactor: 1}}
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return err
	}
	b.topicID = resp.Topics[0].TopicID
	return nil
}

func (b *broker) deleteTopic(ctx context.Context) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seed))
	if err != nil {
		return
	}
	defer cl.Close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 60_000
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &b.topic}}
	req.TopicNames = []string{b.topic}
	if _, err := req.RequestWith(ctx, cl); err != nil {
		fmt.Fprintf(os.Stderr, "rebalance: topic %s stays on %s: %v\n", b.topic, b.name, err)
	}
}

// report prints medians, with the ratio of the first broker to the second.
func report(brokers []*broker) {
	head, line := "| time until stable, s |", "|---|"
	for _, b := range brokers {
		head, line = head+" "+b.name+" |", line+"---|"
	}
	if len(brokers) == 2 {
		head, line = head+" ratio |", line+"---|"
	}
	fmt.Println(head)
	fmt.Println(line)
	for _, what := range measured {
		row := "| " + what + " |"
		var medians []float64
		for _, b := range brokers {
			all := slices.SortedFunc(slices.Values(b.took[what]), cmp.Compare)
			m := all[len(all)/2].Seconds()
			medians = append(medians, m)
			row += fmt.Sprintf(" %.2f (%.2f–%.2f) |", m, all[0].Seconds(), all[len(all)-1].Seconds())
		}
		if len(medians) == 2 {
			row += fmt.Sprintf(" %.2f |", medians[0]/medians[1])
		}
		fmt.Println(row)
	}
}
