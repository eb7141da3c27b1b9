package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Behind a pooler, too, a renewal waits for a row for a second at most.
func TestRenewalOfALockedRowBehindAPooler(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := pool(t, server.DSN("postgres"))
	p := join(t, testenv.PgBouncer(t, server, "transaction", "default_pool_size=6").DSN("postgres"), time.Hour)
	h := p.take(p.mutex("x"))
	defer blocked(t, admin, "x")()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = p.Renew(ctx, []driver.Hold{h})
	}()
	longest := 0.0
	for {
		select {
		case <-done:
			if longest > 1.5 {
				t.Errorf("a statement waited for the row for %v s", longest)
			}
			return
		case <-time.After(50 * time.Millisecond):
			longest = max(longest, value[float64](t, admin, "SELECT coalesce(max(extract(epoch FROM now() - query_start)), 0)::float8 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
		}
	}
}
