package redislock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// While a slot of a Cluster is on its way from one server to another, some of its keys are here
// and some there, and a script that needs several of them is refused by both with TRYAGAIN,
// before it has done anything. The same goes for keys that are on neither, as those of a line
// that nobody stands in. So scripts of one key go on all the time, and the others wait.

// unstable reports whether err says that; or that another server has the slot by now, which is
// an answer only to what has to stay with one server (Conn.RunWait).
func unstable(err error) bool {
	if err == nil || errors.Is(err, driver.ErrDamaged) { // which shows a name
		return false
	}
	text := err.Error()
	return strings.Contains(text, "TRYAGAIN") || strings.Contains(text, "MOVED ") || strings.Contains(text, "ASK ")
}

// unstableFor bounds how long one exchange waits for a slot to arrive. Callers ask again after it.
const unstableFor = 2 * time.Second

// A pacer spaces the repetitions of a request that was refused as unstable.
type pacer struct {
	start time.Time
	pause time.Duration
}

// wait waits for the next time. It reports false when there is none.
func (p *pacer) wait(ctx context.Context) bool {
	const shortest, longest = 2 * time.Millisecond, 50 * time.Millisecond
	if p.start.IsZero() {
		p.start, p.pause = time.Now(), shortest
	}
	if time.Since(p.start) > unstableFor {
		return false
	}
	t := time.NewTimer(p.pause)
	defer t.Stop()
	p.pause = min(2*p.pause, longest)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pipeline runs calls, and those again that were refused as unstable.
func (b *Backend) pipeline(ctx context.Context, run func(context.Context, []Call) []Result, calls []Call) []Result {
	results := run(ctx, calls)
	if !b.cluster {
		return results
	}
	for p := (pacer{}); ; {
		var left []int
		for i := range results {
			if unstable(results[i].Err) {
				left = append(left, i)
			}
		}
		if len(left) == 0 || !p.wait(ctx) {
			return results
		}
		again := make([]Call, len(left))
		for j, i := range left {
			again[j] = calls[i]
		}
		for j, r := range run(ctx, again) {
			results[left[j]] = r
		}
	}
}
