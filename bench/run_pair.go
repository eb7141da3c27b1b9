package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

func pairScenarios() []scenario {
	return []scenario{{
		name: "pair", store: "redis",
		title: "Uncontended lock and unlock of one name, one goroutine; the last six columns are per pair.",
		columns: []column{
			dur("p50", "p50"), dur("p99", "p99"), num("persec", "pairs/s"), num("sent", "commands"),
			num("calls", "with scripts"),
			num("allocs", "allocs"), num("bytes", "bytes"), dur("cpu", "client CPU"), dur("srvcpu", "server CPU"),
		},
		subjects: withRedisson(1, 1, each(nil, runPair)),
	}}
}

func runPair(ctx context.Context, b *testbed, l library) (metrics, error) {
	w := new(wire)
	c, err := l.open(ctx, b.site(0, w))
	if err != nil {
		return nil, err
	}
	m, err := pairs(ctx, b, w, c.contender("pair"))
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return m, err
}

// pairs measures lock and unlock of a single contender.
func pairs(ctx context.Context, b *testbed, w *wire, k contender) (metrics, error) {
	// The calls have no deadline, as most users call them. redislock then gives up after its TTL,
	// which cannot happen here.
	background := context.Background()
	pair := func() error {
		if err := k.lock(background); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := k.unlock(); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
		return nil
	}
	for range 200 {
		if err := pair(); err != nil {
			return nil, err
		}
	}
	var h hist
	before, err := b.read(ctx, w)
	if err != nil {
		return nil, err
	}
	for t, start := time.Now(), time.Now(); t.Sub(start) < b.duration && ctx.Err() == nil; {
		if err := pair(); err != nil {
			return nil, err
		}
		now := time.Now()
		h.Record(now.Sub(t))
		t = now
	}
	after, err := b.read(ctx, w)
	if err != nil {
		return nil, err
	}
	m := metrics{"n": float64(h.N)}
	before.until(after, float64(h.N), m)
	m.p50p99("", &h)
	return m, nil
}

// nameCounts are the numbers of goroutines, each with a name of its own.
var nameCounts = []int{3, 8, 16, 64, 512}

func namesScenarios() (all []scenario) {
	for _, n := range nameCounts {
		all = append(all, scenario{
			name: fmt.Sprintf("names/%d", n), store: "redis",
			title: fmt.Sprintf("%d goroutines of one client, each locking and unlocking a name of its own.", n),
			columns: []column{
				num("persec", "pairs/s"), dur("p50", "p50"), dur("p99", "p99"), num("sent", "commands"),
				num("allocs", "allocs"), dur("cpu", "client CPU"), dur("srvcpu", "server CPU"),
			},
			subjects: each(nil, func(ctx context.Context, b *testbed, l library) (metrics, error) {
				return runNames(ctx, b, l, n)
			}),
		})
	}
	return all
}

func runNames(ctx context.Context, b *testbed, l library, count int) (m metrics, err error) {
	w := new(wire)
	c, err := l.open(ctx, site{addr: b.server.addr, wire: w})
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := c.close(); err == nil {
			err = cerr
		}
	}()
	var counting, stop atomic.Bool
	var group sync.WaitGroup
	hists := make([]hist, count)
	errs := make([]error, count)
	background := context.Background()
	for i := range count {
		k := c.contender(fmt.Sprintf("name-%d", i))
		group.Go(func() {
			for !stop.Load() {
				t := time.Now()
				err := k.lock(background)
				if err == nil {
					err = k.unlock()
				}
				if err != nil {
					errs[i] = err
					return
				}
				if counting.Load() {
					hists[i].Record(time.Since(t))
				}
			}
		})
	}
	pause(ctx, b.duration/5)
	before, berr := b.read(ctx, w)
	counting.Store(true)
	pause(ctx, b.duration)
	counting.Store(false)
	after, aerr := b.read(ctx, w)
	stop.Store(true)
	group.Wait()
	var h hist
	for i := range hists {
		h.Merge(&hists[i])
		if err == nil {
			err = errs[i]
		}
	}
	if err = firstError(err, berr, aerr, ctx.Err()); err != nil {
		return nil, err
	}
	m = metrics{}
	before.until(after, float64(h.N), m)
	m.p50p99("", &h)
	return m, nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
