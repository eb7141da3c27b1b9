package backoff

import (
	"context"
	"time"
)

// outlastLate is how much longer than it seemed an obstacle may last.
const outlastLate = 5 * time.Second

// Outlast calls try until nothing is in its way, or the time is over. try returns how long the
// obstacle seems to last, or 0 if there is none. The time is what the first obstacle needs, or ttl
// if that is longer, and 5 s more; most limits it. try gets what is left of the time. Outlast calls
// it a last time when nothing is left, and when ctx has ended; the first call gets most.
func Outlast(ctx context.Context, ttl, most time.Duration, try func(rest time.Duration) (left time.Duration)) {
	begun := time.Now()
	left := try(most)
	limit := min(max(left, ttl)+outlastLate, most)
	for pause := (Pause{First: 50 * time.Millisecond, Most: time.Second}); left > 0; {
		rest := limit - time.Since(begun)
		if !Sleep(ctx, min(pause.Next(), max(rest, 0))) {
			limit = 0
		}
		rest = max(limit-time.Since(begun), 0)
		if left = try(rest); rest == 0 {
			return
		}
	}
}
