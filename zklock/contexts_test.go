package zklock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Every call with a context of 100 ms returns in time when the servers are silent. It reports that
// the caller's time has passed.
func TestTimedContexts(t *testing.T) {
	for name, silence := range map[string]func(s *testenv.ZooKeeperServer, p *testenv.TCPProxy) (heal func()){
		"frozen":     func(s *testenv.ZooKeeperServer, _ *testenv.TCPProxy) func() { s.Pause(); return s.Continue },
		"black hole": func(_ *testenv.ZooKeeperServer, p *testenv.TCPProxy) func() { p.Hole(); return p.Heal },
		"forgotten":  func(_ *testenv.ZooKeeperServer, p *testenv.TCPProxy) func() { p.Forget(); p.Hole(); return p.Heal },
	} {
		t.Run(name, func(t *testing.T) {
			server := testenv.ZooKeeper(t, longSessions)
			proxy := testenv.Proxy(t, server.Addr)
			cfg := on(proxy.Addr)
			p := newPeer(t, cfg)
			h, s := p.get(p.req("x")), p.get(p.permits("s", 1, 2))
			if _, err := p.SetCount(within(t), "l", 2); err != nil {
				t.Fatal(err)
			}
			p.inspect("x") // opens the operators' session
			cold := backend(t, cfg)
			heal := silence(server, proxy)
			defer heal()
			hold := []driver.Hold{h, s}
			for _, c := range []struct {
				name string
				do   func(ctx context.Context) error
			}{
				{"Acquire", func(ctx context.Context) error { _, err := p.Acquire(ctx, p.req("y")); return err }},
				{"Acquire held", func(ctx context.Context) error { _, err := p.Acquire(ctx, once(p.req("x"))); return err }},
				{"Acquire permits", func(ctx context.Context) error { _, err := p.Acquire(ctx, p.permits("s", 2, 2)); return err }},
				{"Renew", func(ctx context.Context) error { _, err := p.Renew(ctx, hold); return err }},
				{"Downgrade", func(ctx context.Context) error { return p.Downgrade(ctx, h) }},
				{"Adopt", func(ctx context.Context) error { return p.Adopt(ctx, h, "another", "") }},
				{"SetCount", func(ctx context.Context) error { _, err := p.SetCount(ctx, "m", 1); return err }},
				{"CountDown", func(ctx context.Context) error { _, err := p.CountDown(ctx, "l", "c"); return err }},
				{"Await", func(ctx context.Context) error { _, err := p.Await(ctx, "l", "w"); return err }},
				{"Cancel", func(ctx context.Context) error { return p.Cancel(ctx, "s", s.ID) }},
				{"Release", func(ctx context.Context) error { return p.Release(ctx, h, 0) }},
				{"Inspect", func(ctx context.Context) error { _, err := p.Inspect(ctx, "x"); return err }},
				{"List", func(ctx context.Context) error { _, err := p.List(ctx, "", "", 10); return err }},
				{"Break", func(ctx context.Context) error { return p.Break(ctx, "x", h.Token) }},
				{"SetLimit", func(ctx context.Context) error { return p.SetLimit(ctx, "s", 3) }},
				{"Inspect, not connected", func(ctx context.Context) error { _, err := cold.Inspect(ctx, "x"); return err }},
				{"Open", func(ctx context.Context) error {
					_, err := cold.Open(ctx, driver.SessionConfig{ID: "cold", TTL: longTTL})
					return err
				}},
				{"Close", func(ctx context.Context) error { return p.Session.Close(ctx) }},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				begin := time.Now()
				err := c.do(ctx)
				took := time.Since(begin)
				cancel()
				if c.name != "Close" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v; want the error of the caller's context", c.name, err)
				}
				t.Logf("%s: %v", c.name, took)
				if took > time.Second { // 150 ms on an idle machine
					t.Errorf("%s returned after %v", c.name, took)
				}
			}
		})
	}
}
