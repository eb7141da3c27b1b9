package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestReadOnlyLongQueue: a server that takes no writes counts a whole queue. Expired places at its
// head do not hide the waiters behind them.
func TestReadOnlyLongQueue(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	b := redislock.New(dialRueidis(t, server.Addr), nil)
	s := openSession(t, b, time.Minute)
	brief := openSession(t, b, 10*time.Second)
	long, hidden := newID(), newID()
	const living = 5
	join := func(of driver.Session, name string, n int) {
		for range n {
			if r := acquire(t, of, exclusive(name)); r.Token != 0 {
				t.Fatal("granted next to another; the machine is too slow for this")
			}
		}
	}
	granted(t, brief, exclusive(long))
	granted(t, brief, exclusive(hidden))
	join(s, long, driver.MaxWaiters+living)
	join(brief, hidden, driver.MaxWaiters)
	join(s, hidden, living)
	server.Do("CONFIG SET min-replicas-to-write 5")
	defer server.Do("CONFIG SET min-replicas-to-write 0")
	until(t, "the brief session's leases and places have expired", func() bool {
		time.Sleep(100 * time.Millisecond) // each answer lists a thousand waiters
		first, err := b.Inspect(within(t, soon), long)
		second, err2 := b.Inspect(within(t, soon), hidden)
		return err == nil && err2 == nil && len(first.Holders)+len(second.Holders) == 0 && second.Waiting == living
	})
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
