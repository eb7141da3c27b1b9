package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestLookingAtWhatIsHalfDone: a script has failed in its middle, and the server takes no writes since. What the next script would
// mend is no damage.
func TestLookingAtWhatIsHalfDone(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	b := redislock.New(dialRueidis(t, server.Addr), nil)
	s := openSession(t, b, time.Minute)
	readers, line := newID(), newID()
	var held []driver.Hold
	for range 2 {
		r := exclusive(readers)
		r.Mode = driver.Shared
		held = append(held, granted(t, s, r))
	}
	granted(t, s, exclusive(line))
	waiter := exclusive(line)
	acquire(t, s, waiter)
	acquire(t, s, exclusive(line))
	key := func(what, name string) string { return "hf:" + tagOf(name) + ":" + what + ":" + name }
	// As removeHold and dropPlace leave it after their first step.
	server.Do("SETRANGE " + key("l", readers) + " 1 2")
	server.Do("HDEL " + key("m", readers) + " h" + held[0].ID)
	server.Do("SETRANGE " + key("l", line) + " 1 2")
	server.Do("HDEL " + key("m", line) + " w" + waiter.ID)
	server.Do("CONFIG SET min-replicas-to-write 5")
	for name, want := range map[string][3]int{readers: {1, 0, 0}, line: {1, 1, 1}} {
		r, err := b.Inspect(within(t, soon), name)
		if got := [3]int{len(r.Holders), len(r.Waiters), r.Waiting}; err != nil || got != want {
			t.Errorf("holders, waiters, waiting: %v, %v; want %v", got, err, want)
		}
	}
	server.Do("CONFIG SET min-replicas-to-write 0")
	for name, want := range map[string][3]int{readers: {1, 0, 0}, line: {1, 1, 1}} {
		r, err := b.Inspect(within(t, soon), name)
		if got := [3]int{len(r.Holders), len(r.Waiters), r.Waiting}; err != nil || got != want {
			t.Errorf("mended: holders, waiters, waiting: %v, %v; want %v", got, err, want)
		}
	}
}
