package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A synchronous standby takes over, while clients still use the old primary. Its commits wait for a
// standby, except for releases: it hands the lock to the next waiter. The new primary knows that
// waiter's place, but not its grant. It grants the lock to nobody while that waiter may trust its
// lease.
func TestPromotedStandby(t *testing.T) {
	t.Parallel()
	const ttl = 9 * time.Second
	primary := database(t)
	standby := testenv.PostgresStandby(t, primary)
	primary.Exec("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
	admin := pool(t, primary.DSN("postgres"))
	until(t, "the standby confirms", func() bool {
		return value[int](t, admin, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	client := func(server *testenv.PostgresServer) *holdfast.Client {
		b, _ := backend(t, server.DSN("postgres"), nil)
		return clientOn(t, b, ttl)
	}
	holder, waiter := client(primary), client(primary)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	held, err := holder.Mutex("x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *holdfast.Lease, 1)
	go func() {
		defer close(got)
		if l, err := waiter.Mutex("x").Lock(ctx); err == nil {
			got <- l
		}
	}()
	until(t, "one waits", func() bool {
		r, err := holder.Inspect(ctx, "x")
		return err == nil && r.Waiting == 1
	})
	standby.Exec("SELECT pg_promote()")
	if err := held.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
	handed := <-got
	if handed == nil {
		t.Fatal("the old primary has not handed the lock over")
	}
	next, err := client(standby).Mutex("x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if handed.Err() == nil {
		t.Errorf("the new primary has granted %d at the same time as %d", next.Token(), handed.Token())
	}
	if next.Token() <= handed.Token() {
		t.Errorf("the new primary has granted %d after %d", next.Token(), handed.Token())
	}
}
