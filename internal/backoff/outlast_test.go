package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutlast(t *testing.T) {
	const ttl, tick = 15 * time.Second, time.Hour
	for what, c := range map[string]struct {
		named, left, most time.Duration // the obstacle, as it seems and as it is
		gives             time.Duration // the caller gives up then, if it is not 0
		after, late       time.Duration // when the last try is
	}{
		"no obstacle":  {most: tick},
		"ends":         {named: ttl, left: ttl, most: tick, after: ttl, late: time.Second},
		"ends earlier": {named: time.Minute, left: time.Second, most: tick, after: time.Second, late: time.Second},
		"ends later": {named: ttl, left: ttl + 4*time.Second, most: tick, after: ttl + 4*time.Second,
			late: time.Second},
		"another one follows":   {named: time.Second, left: ttl, most: tick, after: ttl, late: time.Second},
		"does not end":          {named: 20 * time.Second, left: tick, most: tick, after: 25 * time.Second},
		"seems to end, and not": {named: time.Nanosecond, left: tick, most: tick, after: ttl + 5*time.Second},
		"longer than a tick":    {named: ttl, left: ttl, most: 10 * time.Second, after: 10 * time.Second},
		"the caller gives up":   {named: ttl, left: ttl, most: tick, gives: 3 * time.Second, after: 3 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.gives > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.gives)
					defer cancel()
				}
				begun, tries, last := time.Now(), 0, time.Duration(0)
				Outlast(ctx, ttl, c.most, func(rest time.Duration) time.Duration {
					if tries++; rest < 0 || rest > c.most || rest == 0 && last < c.after-time.Second {
						t.Errorf("try %d: %v is left", tries, rest)
					}
					if last = time.Since(begun); last >= c.left {
						return 0
					}
					return c.named
				})
				if took := time.Since(begun); last < c.after || last > c.after+c.late || took != last {
					t.Errorf("the last of %d tries was after %v, and the end after %v; want %v", tries, last, took, c.after)
				}
				if most := 6 + int(last/time.Second); tries > most {
					t.Errorf("%d tries in %v; want %d at most", tries, last, most)
				}
			})
		})
	}
}
