package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

const (
	heldTTL   = 30 * time.Second
	heldCount = 10_000
)

func heldScenarios() []scenario {
	return []scenario{{
		name: "held", store: "redis",
		title: fmt.Sprintf("%d leases of %v held by one client, each renewed every %v.", heldCount, heldTTL, heldTTL/3),
		columns: []column{
			num("sentps", "commands/s"), num("callsps", "with scripts/s"), pct("cpupct", "client CPU"),
			pct("srvpct", "server CPU"),
			num("heap", "heap bytes per lease"), num("stack", "stack bytes per lease"), num("goroutines", "extra goroutines"),
			dur("take", "time to take them"),
		},
		subjects: each(func(l library) bool {
			switch l.name { // the others renew nothing, or like one of these
			case "redislock", "rueidislock", "holdfast-rueidis", "holdfast-goredis":
				return true
			}
			return false
		}, runHeld),
	}}
}

func runHeld(ctx context.Context, b *testbed, l library) (m metrics, err error) {
	w := new(wire)
	c, err := l.open(ctx, site{addr: b.server.addr, wire: w, ttl: heldTTL})
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := c.close(); err == nil {
			err = cerr
		}
	}()
	// Connections that the load needs are opened before the first reading.
	if err := parallel(takers, func(i int) error {
		k := c.contender(fmt.Sprintf("warm-%d", i))
		for range 20 {
			if err := k.lock(ctx); err != nil {
				return err
			}
			if err := k.unlock(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	idle := liveMemory()
	start := time.Now()
	if err := parallel(takers, func(i int) error {
		for n := i; n < heldCount; n += takers {
			if err := c.hold(ctx, fmt.Sprintf("held-%d", n)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	took := time.Since(start)
	holding := liveMemory()
	before, err := b.read(ctx, w)
	if err != nil {
		return nil, err
	}
	pause(ctx, b.held)
	after, err := b.read(ctx, w)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n, err := b.server.admin.DBSize(ctx).Result()
	if err != nil {
		return nil, err
	}
	if n < heldCount {
		return nil, fmt.Errorf("only %d keys for %d held leases", n, heldCount)
	}
	sec := after.start.Sub(before.start).Seconds()
	return metrics{
		"take": float64(took), "goroutines": float64(holding.goroutines - idle.goroutines),
		"heap":    (holding.heap - idle.heap) / heldCount,
		"stack":   (holding.stack - idle.stack) / heldCount,
		"sentps":  float64(after.sent-before.sent) / sec,
		"callsps": float64(after.load.commands-before.load.commands) / sec,
		"cpupct":  100 * (after.cpu - before.cpu).Seconds() / sec,
		"srvpct":  100 * (after.load.cpu - before.load.cpu).Seconds() / sec,
	}, nil
}

const takers = 64

// parallel runs f in n goroutines and returns one of their errors.
func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = f(i) })
	}
	group.Wait()
	return firstError(errs...)
}

// memory is the memory in use after a garbage collection.
type memory struct {
	heap, stack float64 // bytes
	goroutines  int
}

func liveMemory() memory {
	for range 3 { // the second and third collect finalizers and pools
		runtime.GC()
	}
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return memory{float64(ms.HeapAlloc), float64(ms.StackInuse), runtime.NumGoroutine()}
}
