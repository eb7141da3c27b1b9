package main

import (
	"context"
	"fmt"
)

const idleClients = 64

func idleScenarios() []scenario {
	return []scenario{{
		name: "idle", store: "redis",
		title: fmt.Sprintf("%d clients of one process, each with connections of its own. Each has taken one lock and "+
			"released it, and does nothing now.", idleClients),
		columns: []column{
			num("heap", "heap bytes per client"), num("stack", "stack bytes per client"),
			num("goroutines", "goroutines per client"), num("conns", "connections per client"),
		},
		subjects: each(func(l library) bool { return l.waits }, runIdleClients),
	}}
}

// runIdleClients measures what a client costs that does nothing.
func runIdleClients(ctx context.Context, b *testbed, l library) (m metrics, err error) {
	connected := func() (float64, error) {
		ids, err := b.server.admin.ClientList(ctx).Result()
		n := 0
		for _, c := range ids {
			if c == '\n' {
				n++
			}
		}
		return float64(n), err
	}
	w := new(wire)
	var clients []client
	defer func() {
		for _, c := range clients {
			if cerr := c.close(); err == nil {
				err = cerr
			}
		}
	}()
	open := func(n int) error {
		for range n {
			c, err := l.open(ctx, site{addr: b.server.addr, wire: w})
			if err != nil {
				return err
			}
			clients = append(clients, c)
			k := c.contender(fmt.Sprintf("idle-%d", len(clients)))
			if err := k.lock(ctx); err != nil {
				return err
			}
			if err := k.unlock(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := open(1); err != nil { // what is made once for a process
		return nil, err
	}
	before, conns := liveMemory(), 0.0
	if conns, err = connected(); err != nil {
		return nil, err
	}
	if err := open(idleClients); err != nil {
		return nil, err
	}
	after := liveMemory()
	all, err := connected()
	if err != nil {
		return nil, err
	}
	return metrics{
		"heap":       (after.heap - before.heap) / idleClients,
		"stack":      (after.stack - before.stack) / idleClients,
		"goroutines": float64(after.goroutines-before.goroutines) / idleClients,
		"conns":      (all - conns) / idleClients,
	}, nil
}
