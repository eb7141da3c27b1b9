package quorum_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestContexts: while a majority is silent, every call returns soon after its context has ended
// with the context's error, or earlier with the servers'.
func TestContexts(t *testing.T) {
	t.Parallel()
	const patience = 100 * time.Millisecond
	g := start(t, 5, time.Minute)
	ways := g.proxies()
	b := g.backend(ways.addrs())
	s := open(t, b, "a", time.Minute)
	others := map[string]driver.Session{"first": open(t, b, "c", time.Minute), "second": open(t, b, "d", time.Minute)}
	var longest time.Duration
	held := func(id string) driver.Hold { return get(t, s, try(id, "a-"+strings.ToLower(id))) }
	for _, round := range []string{"first", "second"} {
		holds := map[string]driver.Hold{}
		for _, what := range []string{"Release", "Renew", "Downgrade", "Cancel", "Adopt", "Break"} {
			holds[what] = held(what + round)
		}
		calls := map[string]func(ctx context.Context) error{
			"Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, try("x", "x-"+round)); return err },
			"Acquire and wait": func(ctx context.Context) error {
				r := try("y", "y-"+round)
				r.Wait = true
				_, err := s.Acquire(ctx, r)
				return err
			},
			"Release":   func(ctx context.Context) error { return s.Release(ctx, holds["Release"], 0) },
			"Downgrade": func(ctx context.Context) error { return s.Downgrade(ctx, holds["Downgrade"]) },
			"Cancel":    func(ctx context.Context) error { return s.Cancel(ctx, holds["Cancel"].Name, holds["Cancel"].ID) },
			"Renew": func(ctx context.Context) error {
				_, err := s.Renew(ctx, []driver.Hold{holds["Renew"]})
				return err
			},
			"Adopt":   func(ctx context.Context) error { return s.Adopt(ctx, holds["Adopt"], "n-"+round, "{}") },
			"Inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "x"); return err },
			"List":    func(ctx context.Context) error { _, err := b.List(ctx, "", "", 10); return err },
			"Break":   func(ctx context.Context) error { return b.Break(ctx, holds["Break"].Name, holds["Break"].Token) },
			"Open": func(ctx context.Context) error {
				_, err := b.Open(ctx, driver.SessionConfig{ID: "b" + round, TTL: time.Minute})
				return err
			},
			"Close": func(ctx context.Context) error { return others[round].Close(ctx) },
		}
		ways[1:4].each((*testenv.TCPProxy).Hole)
		for _, what := range slices.Sorted(maps.Keys(calls)) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			from := time.Now()
			err := calls[what](ctx)
			d := time.Since(from)
			cancel()
			longest = max(longest, d)
			if d > 30*time.Second {
				t.Errorf("%s: %s with a context of %v: back after %v: %v", round, what, patience, d, err)
			}
			// No call waits for servers that are known to be silent, and servers that were not
			// asked need no release. A server's own limit for silence is longer than the delays of
			// a busy machine.
			if !errors.Is(err, context.DeadlineExceeded) && (d >= patience+time.Second || err != nil && !passing(err)) {
				t.Errorf("%s: %s with a context of %v: %v after %v; want context.DeadlineExceeded", round, what, patience, err, d)
			}
		}
		ways[1:4].each((*testenv.TCPProxy).Heal)
	}
	t.Logf("the longest took %v", longest)
}
