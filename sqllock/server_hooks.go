package sqllock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/internal/hook"
)

func init() {
	hook.SQLSweep = func(ctx context.Context, b any, cursor []byte, idle time.Duration) ([]byte, error) {
		return b.(*Server).sweepFrom(ctx, cursor, idle)
	}
	hook.SQLSweepHistories = func(ctx context.Context, b any, cursor []byte, life time.Duration) ([]byte, error) {
		return b.(*Server).sweepHistories(ctx, cursor, life)
	}
	hook.SQLRemembered = func(b any) int { return b.(*Server).remembered() }
}

// remembered counts the requests in b's memory.
func (b *Server) remembered() (n int) {
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
