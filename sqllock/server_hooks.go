package sqllock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/sqllock/internal/samehost"
)

func init() {
	hook.SQLSweep = func(ctx context.Context, b any, cursor []byte, idle time.Duration) ([]byte, error) {
		return b.(*Server).sweepFrom(ctx, cursor, idle)
	}
	hook.SQLSweepHistories = func(ctx context.Context, b any, cursor []byte, life time.Duration) ([]byte, error) {
		return b.(*Server).sweepHistories(ctx, cursor, life)
	}
	hook.SQLRemembered = func(b any) int { return b.(*Server).remembered() }
	hook.SQLSocket = func(b any) any { return b.(*Server).socket }
	hook.SQLServerID = func(b any) string { return b.(*Server).id }
	hook.SQLTell = func(b any, to, name, id string, token uint64) bool {
		return len(b.(*Server).tell([]Ring{{Name: name, Server: to, ID: id, Token: token}})) == 0
	}
	hook.SQLSocketIn = func(b any, dir string) {
		s := b.(*Server)
		s.socket = samehost.New(dir, s.d.Name(), s.id, s.message, s.lookAgain)
	}
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
