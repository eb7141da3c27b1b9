package sqllock

import (
	"context"
	"time"
)

// SweepFrom is what runs every ten minutes, for names that have been idle for so long.
func SweepFrom(ctx context.Context, b *Server, cursor []byte, idle time.Duration) (next []byte, err error) {
	return b.sweepFrom(ctx, cursor, idle)
}

// Remembered is how many requests b keeps something of.
func Remembered(b *Server) (n int) {
	b.bells.mu.Lock()
	n = len(b.bells.by) + len(b.bells.names)
	b.bells.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.open {
		s.mu.Lock()
		n += len(s.live)
		s.mu.Unlock()
	}
	return n
}
