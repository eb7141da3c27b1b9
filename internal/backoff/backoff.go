// Package backoff spaces the tries of something that fails for a while. Each pause is twice as long
// as the one before.
package backoff

import (
	"context"
	"time"
)

// Pause yields pauses from First, doubled each time, to Most. Both must be positive. It is not safe
// for concurrent use.
type Pause struct {
	First, Most time.Duration

	next time.Duration
}

// Next returns the next pause.
func (p *Pause) Next() time.Duration {
	d := min(max(p.next, p.First), p.Most)
	p.next = 2 * d
	return d
}

// Reset makes the next pause the first again.
func (p *Pause) Reset() { p.next = 0 }

// Wait waits for the next pause, or returns false when ctx ends.
func (p *Pause) Wait(ctx context.Context) bool { return Sleep(ctx, p.Next()) }

// Sleep waits for d, or returns false when ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
