package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// ping is the floor: the smallest possible exchange.
func pingScenarios() []scenario {
	return []scenario{{
		name: "ping", store: "redis",
		title:   "PING, one goroutine: one empty exchange with the server.",
		columns: []column{dur("p50", "p50"), dur("p99", "p99"), num("persec", "per s")},
		subjects: []subject{
			{"raw-rueidis", func(ctx context.Context, b *testbed) (metrics, error) {
				c, err := rueidis.NewClient(new(wire).rueidisOption(b.server.addr))
				if err != nil {
					return nil, err
				}
				defer c.Close()
				return ping(b, 0, func() error { return c.Do(ctx, c.B().Ping().Build()).Error() })
			}},
			{"raw-goredis", func(ctx context.Context, b *testbed) (metrics, error) {
				c := new(wire).goredisClient(b.server.addr)
				defer c.Close()
				return ping(b, 0, func() error { return c.Ping(ctx).Err() })
			}},
		},
	}}
}

// ping measures once, repeatedly, each time after a pause.
func ping(b *testbed, idle time.Duration, once func() error) (metrics, error) {
	for range 100 {
		if err := once(); err != nil {
			return nil, err
		}
	}
	var h hist
	start := time.Now()
	for time.Since(start) < b.duration {
		if idle > 0 {
			time.Sleep(idle)
		}
		t := time.Now()
		if err := once(); err != nil {
			return nil, err
		}
		h.Record(time.Since(t))
	}
	m := metrics{"persec": float64(h.N) / time.Since(start).Seconds()}
	m.p50p99("", &h)
	return m, nil
}
