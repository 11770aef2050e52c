// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Role is the name of the elected role.
const Role = "controller"

// Config is what a Controller works with. Zero values are the defaults.
type Config struct {
	BytesIn    BytesIn // nil: this node reports no load
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Controller reports this node's load and, while the node holds the role, plans and carries plans out.
type Controller struct {
	cfg     Config
	meta    *metadata.Store
	log     *slog.Logger
	holding atomic.Bool
	unclean atomic.Uint64 // leaders elected uncleanly
	steps   *prometheus.CounterVec
	moving  prometheus.Gauge
	planner *Planner // of the present term
	rates   map[metadata.PartitionID]measured
	loadsAt time.Time
	offline map[metadata.PartitionID]time.Time // without a leader since then, as far as that may be ended uncleanly
}

// measured is a partition's load as it was reported last, and since when its present leader leads.
type measured struct {
	rate   int64
	leader metadata.Revision
	since  time.Time
}

// New makes a controller; Run works.
func New(cfg Config, meta *metadata.Store) *Controller {
	c := &Controller{
		cfg: cfg, meta: meta, log: cfg.Logger,
		moving: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_reassigning_partitions", Help: "Reassignments under way, as the controller sees them."}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_controller_steps_total", Help: "Changes of assignments, by reason."},
			[]string{"reason"}),
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	for _, why := range []Reason{WhyStep, WhyGiveUp, WhyLeads, WhyDrain, WhyFactor, WhyLeaderLoad, WhyReplicaLoad, WhyReplicas} {
		c.steps.WithLabelValues(string(why))
	}
	active := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_controller_active", Help: "1 on the node that holds the role of the controller."}, func() float64 {
		if c.Active() {
			return 1
		}
		return 0
	})
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(active, c.moving, c.steps)
	}
	return c
}

// Active tells whether this node holds the role.
func (c *Controller) Active() bool { return c.holding.Load() }

// UncleanElections is how many leaders this node has elected uncleanly while it held the role.
func (c *Controller) UncleanElections() uint64 { return c.unclean.Load() }

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.keepReporting(ctx) })
	g.Go(func() error { return c.keepElecting(ctx) })
	return g.Wait()
}

// keepReporting puts this node's load into the metadata when it changed.
func (c *Controller) keepReporting(ctx context.Context) error {
	if c.cfg.BytesIn == nil {
		return nil
	}
	var r reporter
	var under *metadata.Session
	for pause(ctx, sampleEvery) == nil {
		session := c.meta.Session()
		if session == nil || session.Err() != nil {
			continue
		}
		if session != under {
			under = session
			r.failed() // the report went with the registration
		}
		loads, worth := r.add(time.Now(), c.cfg.BytesIn())
		if !worth {
			continue
		}
		if err := c.meta.PutLoad(ctx, session, loads); err != nil {
			r.failed()
			if ctx.Err() == nil {
				c.log.Warn("load not reported", "error", err)
			}
		}
	}
	return nil
}

// keepElecting tries to get the role whenever a registration changed, since it may be its holder's that ended, and acts while it has it.
func (c *Controller) keepElecting(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	defer c.meta.Subscribe(func(old, img *metadata.Image) {
		if !sameNodes(old, img) {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})()
	for ctx.Err() == nil {
		wait := electEvery
		if session := c.meta.Session(); session != nil && session.Err() == nil {
			mine, err := c.meta.Elect(ctx, session, Role)
			switch {
			case err != nil && ctx.Err() == nil:
				c.log.Debug("no controller elected", "error", err)
				wait = retryPause
			case mine:
				c.hold(ctx, session)
				continue
			}
		} else {
			wait = retryPause
		}
		t := time.NewTimer(wait)
		select {
		case <-wake:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return nil
}

func sameNodes(a, b *metadata.Image) bool {
	return slices.EqualFunc(a.Brokers(), b.Brokers(), func(x, y *metadata.Broker) bool { return x.Node == y.Node && x.Incarnation == y.Incarnation })
}

// hold is one term: it plans with every news, and every so often without, until the registration ends.
func (c *Controller) hold(ctx context.Context, session *metadata.Session) {
	c.log.Info("this node is the controller")
	c.holding.Store(true)
	defer c.holding.Store(false)
	c.planner, c.rates, c.loadsAt = NewPlanner(), map[metadata.PartitionID]measured{}, time.Time{}
	c.offline = nil
	news := make(chan struct{}, 1)
	defer c.meta.Subscribe(func(_, _ *metadata.Image) {
		select {
		case news <- struct{}{}:
		default:
		}
	})()
	for {
		again := c.act(ctx)
		t := time.NewTimer(again)
		select {
		case <-t.C:
		case <-session.Lost():
			t.Stop()
			return
		case <-ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
		t = time.NewTimer(planEvery - again)
		select {
		case <-news:
		case <-t.C:
		case <-session.Lost():
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// act plans once, carries the plan out, and says how long to rest at least.
func (c *Controller) act(ctx context.Context) (rest time.Duration) {
	img := c.meta.Image()
	if !img.Loaded() {
		return planPause
	}
	if now := time.Now(); now.Sub(c.loadsAt) >= planEvery {
		c.loadsAt = now
		if err := c.readLoads(ctx, now, img); err != nil && ctx.Err() == nil {
			c.log.Warn("loads not read", "error", err)
		}
	}
	cluster := c.view(img)
	moving := 0
	for i := range cluster.Partitions {
		if cluster.Partitions[i].Move != nil {
			moving++
		}
	}
	c.moving.Set(float64(moving))
	c.electUnclean(ctx, time.Now(), img)
	steps := c.planner.Plan(time.Now(), cluster)
	if err := c.carryOut(ctx, img, steps); err != nil && ctx.Err() == nil {
		c.log.Warn("plan not carried out", "error", err)
		return retryPause
	}
	if len(steps) > 0 || moving > 0 {
		return planPause
	}
	return retryPause
}

// readLoads takes over what the leaders report. What a node says about a partition that it leads no more changes nothing, and that a new
// leader says nothing about it yet does not mean that nothing comes in: it may have reported before it could know.
func (c *Controller) readLoads(ctx context.Context, now time.Time, img *metadata.Image) error {
	reports, err := c.meta.ReadLoads(ctx)
	if err != nil {
		return err
	}
	said := map[record.NodeID]map[metadata.PartitionID]int64{}
	at := map[record.NodeID]metadata.Revision{}
	for _, r := range reports {
		said[r.Node], at[r.Node] = make(map[metadata.PartitionID]int64, len(r.Loads)), r.Rev
		for _, l := range r.Loads {
			said[r.Node][l.ID] = l.Rate
		}
	}
	rates := make(map[metadata.PartitionID]measured, len(c.rates))
	for t := range img.Topics() {
		for i := range t.Partitions {
			id := metadata.PartitionID{Topic: t.ID, Index: int32(i)}
			state, _ := img.Partition(id)
			m := c.rates[id]
			if m.leader != state.Leader.Rev {
				m.leader, m.since = state.Leader.Rev, now
			}
			if at[state.Leader.Node] > state.Leader.Rev {
				if rate, listed := said[state.Leader.Node][id]; listed || now.Sub(m.since) >= rateKnown {
					m.rate = rate
				}
			}
			rates[id] = m
		}
	}
	c.rates = rates
	return nil
}

// Around is what FateOf needs of an image: a Cluster without partitions.
func Around(img *metadata.Image) *Cluster {
	out := &Cluster{Nodes: Nodes(img), Drains: map[record.NodeID]bool{}}
	for n := range img.Drains() {
		out.Drains[n] = true
	}
	return out
}

// view is what a plan needs of an image.
func (c *Controller) view(img *metadata.Image) *Cluster {
	out := Around(img)
	for t := range img.Topics() {
		for i := range t.Partitions {
			if t.Deleting {
				break
			}
			id := metadata.PartitionID{Topic: t.ID, Index: int32(i)}
			state, _ := img.Partition(id)
			p := Partition{
				ID: id, Assignment: t.Assignment(int32(i)), ISR: state.ISR, Leader: record.NoNode,
				AutoRF: t.AutoRF, MinISR: t.Config.MinInSyncReplicas, Rate: c.rates[id].rate,
			}
			if b := img.Broker(state.Leader.Node); b != nil && b.Incarnation == state.Leader.Incarnation {
				p.Leader = state.Leader.Node
			}
			out.Partitions = append(out.Partitions, p)
		}
	}
	slices.SortFunc(out.Partitions, func(a, b Partition) int { return compareIDs(a.ID, b.ID) })
	return out
}

// carryOut makes the changes of a plan, some partitions of one topic at a time, and waits until the image shows them. One that lost a
// race is planned anew.
func (c *Controller) carryOut(ctx context.Context, img *metadata.Image, steps []Step) error {
	slices.SortFunc(steps, func(a, b Step) int { return compareIDs(a.ID, b.ID) })
	var last metadata.Revision
	var failed error
	for len(steps) > 0 {
		n := 1
		for n < len(steps) && steps[n].ID.Topic == steps[0].ID.Topic {
			n++
		}
		topic := img.TopicByID(steps[0].ID.Topic)
		for chunk := range slices.Chunk(steps[:n], metadata.MaxAssignmentChanges) {
			next, err := c.change(ctx, topic, chunk)
			if err != nil {
				if !errors.Is(err, metadata.ErrConflict) {
					failed = errors.Join(failed, err)
				}
				break
			}
			topic, last = next, next.Rev
		}
		steps = steps[n:]
	}
	if last > 0 {
		wait, cancel := context.WithTimeout(ctx, planEvery)
		defer cancel()
		failed = errors.Join(failed, c.meta.WaitFor(wait, last))
	}
	return failed
}

func (c *Controller) change(ctx context.Context, topic *metadata.Topic, steps []Step) (*metadata.Topic, error) {
	changes := make([]metadata.AssignmentChange, len(steps))
	for i, s := range steps {
		changes[i] = metadata.AssignmentChange{Partition: s.ID.Index, Next: s.Next, ISR: s.ISR}
	}
	next, err := c.meta.AlterAssignments(ctx, topic, changes)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		c.steps.WithLabelValues(string(s.Why)).Inc()
		args := []any{"topic", topic.Name, "partition", s.ID.Index, "why", s.Why, "replicas", s.Next.Replicas}
		if s.Next.Move != nil {
			args = append(args, "target", s.Next.Move.Target)
		}
		c.log.Info("replicas assigned", args...)
	}
	return next, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
