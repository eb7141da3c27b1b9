package sqllock

import (
	"context"
	"time"
)

// SweepFrom performs one step of the sweep, for names idle for so long.
func SweepFrom(ctx context.Context, b *Server, cursor []byte, idle time.Duration) (next []byte, err error) {
	return b.sweepFrom(ctx, cursor, idle)
}

// Remembered counts the requests in b's memory.
func Remembered(b *Server) (n int) {
	n = b.waiters.Len()
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.open {
		s.mu.Lock()
		n += len(s.live)
		s.mu.Unlock()
	}
	return n
}
