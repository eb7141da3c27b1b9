package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestReadOnlyUnfinishedScript: a script has failed halfway, and the server has taken no writes
// since. A state that the next script would repair is not reported as damage.
func TestReadOnlyUnfinishedScript(t *testing.T) {
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
	// The state that removeHold and dropPlace leave after their first step.
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
			t.Errorf("repaired: holders, waiters, waiting: %v, %v; want %v", got, err, want)
		}
	}
}
