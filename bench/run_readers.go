package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// readerShare, times the number of readers, is how long a reader holds on average. So the readers
// request the same number of grants a second, whatever their number.
const readerShare = 200 * time.Microsecond

func readersColumns(store string) []column {
	cost := []column{dur("cpu", "client CPU")}
	if store == "redis" {
		cost = []column{dur("scripts", "server time in scripts"), dur("srvcpu", "server CPU"), num("sent", "commands"),
			num("calls", "with scripts")}
	}
	return append(cost, num("persec", "grants/s"), num("writes", "visits of the writer"),
		dur("hold", "longest hold of a reader"),
		dur("writep50", "writer's wait p50"), dur("writemax", "longest"), dur("letin", "its release p50"),
		num("violations", "violations"))
}

// readers is a name with many readers and one writer.
type readers struct {
	t          *storeSessions
	mu         sync.Mutex // guards t
	over       atomic.Bool
	grants     atomic.Int64
	reading    atomic.Int64
	writing    atomic.Bool
	violations atomic.Int64
	// Durations of the writer's releases, which grant the name to all waiting readers.
	releases hist
}

// get waits for a grant in mode.
func (r *readers) get(ctx context.Context, mode driver.Mode) (claim, error) {
	r.mu.Lock()
	c := r.t.next()
	r.mu.Unlock()
	for c.token == 0 {
		if err := c.ask(ctx, driver.Request{Mode: mode, N: 1, Wait: true}); err != nil {
			return c, err
		}
		if c.token != 0 {
			break
		}
		select {
		case c.token = <-c.wake: // or 0: ask again
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
	r.grants.Add(1)
	return c, nil
}

// read holds for about d, repeatedly.
func (r *readers) read(ctx context.Context, d time.Duration) error {
	for !r.over.Load() {
		c, err := r.get(ctx, driver.Shared)
		if err != nil {
			return fmt.Errorf("reader: %w", err)
		}
		r.reading.Add(1)
		if r.writing.Load() {
			r.violations.Add(1)
		}
		pause(ctx, d/2+rand.N(d))
		r.reading.Add(-1)
		if err := c.s.Release(ctx, c.hold(), 0); err != nil {
			return fmt.Errorf("reader: %w", err)
		}
	}
	return nil
}

// write takes the name every so often, as long as visit returns true. Each visit finds the readers
// in the same state: none holds, and nearly all are in the queue.
func (r *readers) write(ctx context.Context, every time.Duration,
	visit func(waited time.Duration) (more bool, err error)) error {
	defer r.over.Store(true)
	for more := true; more; {
		pause(ctx, every)
		start := time.Now()
		c, err := r.get(ctx, driver.Exclusive)
		if err != nil {
			return fmt.Errorf("writer: %w", err)
		}
		waited := time.Since(start)
		r.writing.Store(true)
		more, err = visit(waited)
		if r.reading.Load() != 0 {
			r.violations.Add(1)
		}
		r.writing.Store(false)
		start = time.Now()
		if err := errors.Join(err, c.s.Release(ctx, c.hold(), 0)); err != nil {
			return fmt.Errorf("writer: %w", err)
		}
		r.releases.Record(time.Since(start))
	}
	return nil
}

func runReaders(ctx context.Context, b *testbed, t *storeSessions, n int) (metrics, error) {
	r := &readers{t: t}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hold := time.Duration(n) * readerShare
	var group sync.WaitGroup
	do := func(f func() error) {
		group.Go(func() {
			if err := f(); err != nil {
				cancel(err) // the first; later ones follow from it
			}
		})
	}
	for range n {
		do(func() error { return r.read(ctx, hold) })
	}
	// The count begins and ends with a visit of the writer, so that it has every grant with its
	// release.
	var before, after window
	var first, grants int64
	var writes hist
	start := time.Now()
	do(func() error {
		return r.write(ctx, hold, func(waited time.Duration) (more bool, err error) {
			switch {
			case time.Since(start) < b.duration/5:
			case first == 0:
				first = r.grants.Load()
				before, err = b.read(ctx, t.w)
			default:
				writes.Record(waited)
				if time.Since(before.start) >= b.duration {
					grants = r.grants.Load() - first
					after, err = b.read(ctx, t.w)
					return false, err
				}
			}
			return true, err
		})
	})
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m := metrics{
		"n": float64(grants), "violations": float64(r.violations.Load()), "hold": float64(3 * hold / 2),
		"writes":   float64(writes.N),
		"writep50": float64(min(writes.Quantile(0.5), writes.Max)), "writemax": float64(writes.Max),
		"letin": float64(r.releases.Quantile(0.5)),
	}
	before.until(after, float64(grants), m)
	return m, nil
}
