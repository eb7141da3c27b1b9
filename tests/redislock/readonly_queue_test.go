package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestReadOnlyLongQueue: a server that takes no writes counts a whole queue. Expired places at its
// head do not hide the waiters behind them.
func TestReadOnlyLongQueue(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	b := newEdited(dialRueidis(t, server.Addr), nil, func(_, text string) string { return stepper + text })
	s := openSession(t, b, 10*time.Minute)
	brief := openSession(t, b, time.Minute)
	long, hidden := newID(), newID()
	const living = 5
	join := func(of driver.Session, name string, n int) {
		for range n {
			if r := acquire(t, of, exclusive(name)); r.Token != 0 {
				t.Fatalf("granted next to another: %+v", r)
			}
		}
	}
	granted(t, brief, exclusive(long))
	granted(t, brief, exclusive(hidden))
	join(s, long, driver.MaxWaiters+living)
	join(brief, hidden, driver.MaxWaiters)
	join(s, hidden, living)
	server.Do("SET step:ahead 120") // the brief session's leases and places are over
	server.Do("CONFIG SET min-replicas-to-write 5")
	defer server.Do("CONFIG SET min-replicas-to-write 0")
	for name, want := range map[string]int{long: driver.MaxWaiters + living, hidden: living} {
		r, err := b.Inspect(within(t, soon), name)
		if err != nil || r.Kind != driver.Lock || len(r.Holders) != 0 || len(r.Waiters) != min(want, driver.MaxWaiters) ||
			r.Waiting != want {
			t.Errorf("kind %d, %d holders, %d waiters of %d, %v; want a lock, none, %d of %d",
				r.Kind, len(r.Holders), len(r.Waiters), r.Waiting, err, min(want, driver.MaxWaiters), want)
		}
	}
	list, err := b.List(within(t, soon), "", "", 100)
	if err != nil || len(list) != 2 {
		t.Errorf("listed %d names, %v; want 2", len(list), err)
	}
}
