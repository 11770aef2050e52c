// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Job is a background job.
type Job struct {
	Name     string
	Interval time.Duration // at least MinInterval
	Deadline time.Duration // of one run
	Run      func(ctx context.Context) error
}

// Jobs is a registry of background jobs: each runs by itself at its interval, never twice at once, under a deadline and a panic guard;
// it can be ticked and switched off, and its last success is a metric (V9).
type Jobs struct {
	logger   *slog.Logger
	success  *prometheus.GaugeVec
	failures *prometheus.CounterVec
	jobs     []*job
}

type job struct {
	Job
	off  atomic.Bool
	turn sync.Mutex // one run at a time; never held by anything else
}

// ErrUnknownJob: there is no job of that name.
var ErrUnknownJob = errors.New("tiering: unknown job")

// NewJobs makes an empty registry.
func NewJobs(logger *slog.Logger, r prometheus.Registerer) *Jobs {
	return &Jobs{logger: logger,
		success: registered(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "varve_job_last_success_timestamp_seconds",
			Help: "When a background job last ended without an error."}, []string{"job"})),
		failures: registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_job_failures_total",
			Help: "Runs of a background job that failed."}, []string{"job"}))}
}

// Add registers a job; before Run.
func (j *Jobs) Add(jb Job) {
	jb.Interval = max(jb.Interval, MinInterval)
	j.jobs = append(j.jobs, &job{Job: jb})
	j.success.WithLabelValues(jb.Name)
	j.failures.WithLabelValues(jb.Name)
}

// Names lists the jobs.
func (j *Jobs) Names() []string {
	names := make([]string, len(j.jobs))
	for i, jb := range j.jobs {
		names[i] = jb.Name
	}
	return names
}

func (j *Jobs) find(name string) (*job, error) {
	for _, jb := range j.jobs {
		if jb.Name == name {
			return jb, nil
		}
	}
	return nil, fmt.Errorf("%w %q, there are %v", ErrUnknownJob, name, j.Names())
}

// Tick runs a job once, now, also one that is switched off, and returns its error.
func (j *Jobs) Tick(ctx context.Context, name string) error {
	jb, err := j.find(name)
	if err != nil {
		return err
	}
	return j.once(ctx, jb)
}

// Switch turns a job off or on.
func (j *Jobs) Switch(name string, on bool) error {
	jb, err := j.find(name)
	if err == nil {
		jb.off.Store(!on)
	}
	return err
}

// Run runs every job at its interval until ctx ends.
func (j *Jobs) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, jb := range j.jobs {
		g.Go(func() error {
			t := time.NewTicker(jb.Interval)
			defer t.Stop()
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-t.C:
				}
				if jb.off.Load() || ctx.Err() != nil {
					continue
				}
				if err := j.once(ctx, jb); err != nil && ctx.Err() == nil {
					j.logger.Warn("job failed", "job", jb.Name, "err", err)
				}
			}
		})
	}
	return g.Wait()
}

func (j *Jobs) once(ctx context.Context, jb *job) (err error) {
	jb.turn.Lock()
	defer jb.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, jb.Deadline)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("job %s: panic: %v\n%s", jb.Name, r, debug.Stack())
		}
		if err != nil {
			j.failures.WithLabelValues(jb.Name).Inc()
			return
		}
		j.success.WithLabelValues(jb.Name).SetToCurrentTime()
	}()
	return jb.Run(ctx)
}
