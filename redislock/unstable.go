package redislock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// While a slot of a Cluster moves between two servers, each server has some of its keys. Both
// refuse a script of several keys with TRYAGAIN before it has done anything. They also do that for
// keys that exist on neither server, such as those of an empty queue. So scripts of one key go on
// all the time, and the others wait.

// unstable reports whether err is such a refusal, or says that another server has the slot now. The
// latter reaches only calls that must stay with one server (Conn.RunWait).
func unstable(err error) bool {
	if err == nil || errors.Is(err, driver.ErrDamaged) { // whose text contains a name
		return false
	}
	text := err.Error()
	return strings.Contains(text, "TRYAGAIN") || strings.Contains(text, "MOVED ") || strings.Contains(text, "ASK ")
}

// unstableFor bounds how long one exchange waits for a slot. Callers ask again after that.
const unstableFor = 2 * time.Second

// A pacer spaces the retries of a request that was refused as unstable.
type pacer struct {
	start time.Time
	pause backoff.Pause
}

// wait waits until the next retry. It returns false if there is none.
func (p *pacer) wait(ctx context.Context) bool {
	if p.start.IsZero() {
		p.start, p.pause = time.Now(), backoff.Pause{First: 2 * time.Millisecond, Most: 50 * time.Millisecond}
	}
	return time.Since(p.start) <= unstableFor && p.pause.Wait(ctx)
}

// pipeline runs calls, and retries those that were refused as unstable.
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
