package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestRedissonWatched: a watcher sees what Redisson announces to nobody at its next look, which is a third
// of its TTL later at most.
func TestRedissonWatched(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	b := redisson.New(dialRueidis(t, m.addr), nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(within(t, soon)) })
	name, said := newID(), []holdfast.EventType{}
	for e, err := range c.Watch(within(t, soon), "") {
		if errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain) {
			continue // a look had no answer within a second; the next one follows
		}
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, e.Type)
		switch e.Type {
		case holdfast.EventReady:
			if !m.lock(name) {
				t.Fatal("Java has no lock")
			}
			continue
		case holdfast.EventHeld:
			if len(e.Granted) != 1 || e.Name != name || e.Granted[0].Program != "Redisson" {
				t.Errorf("%+v; want a grant of Redisson", e)
			}
			m.unlock(name)
			continue
		case holdfast.EventFree:
			if e.Name != name || len(e.Ended) != 1 {
				t.Errorf("%+v; want the end of that grant", e)
			}
		}
		break
	}
	if want := 3; len(said) != want {
		t.Errorf("%v; want ready, held and free", said)
	}
}
