package redislock_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// leftAlone hands a lock on among waiters of s until it is left to Java for a moment. Then those requests
// wait that it returns, in their order.
func leftAlone(t *testing.T, m *mixed, s driver.Session, name string) (asked []*driver.Request, replies []driver.Reply) {
	t.Helper()
	hears(t, m, "redisson_lock__channel:{"+name+"}") // as a client in Java that waits
	h := granted(t, s, exclusive(name))
	for range 2 {
		r := exclusive(name)
		asked, replies = append(asked, r), append(replies, acquire(t, s, r))
	}
	for range 100 {
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		select {
		case token := <-replies[0].Wake:
			if token == 0 {
				return asked, replies
			}
			h = driver.Hold{Name: name, ID: asked[0].ID, Token: token}
		case <-time.After(soon):
			t.Fatal("not woken")
		}
		r := exclusive(name)
		asked, replies = append(asked[1:], r), append(replies[1:], acquire(t, s, r))
	}
	t.Fatal("never left to Java")
	return nil, nil
}

// TestRedissonTurnCancelled: a lock that was left to Java for a moment goes to the next waiter in Go, if
// the one that was woken to ask for it is cancelled.
func TestRedissonTurnCancelled(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, _ := m.open(nil, long)
	name := newID()
	asked, replies := leftAlone(t, m, s, name)
	if err := s.Cancel(t.Context(), name, asked[0].ID); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, replies[1]); token == 0 {
		replies[1] = acquire(t, s, asked[1])
		gets(t, s, asked[1], replies[1])
	}
}

// TestRedissonTurnClockSetBack: when the server's clock is set back, a lock that was once left to Java is
// not left alone until the clock has come back to that time.
func TestRedissonTurnClockSetBack(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, _ := m.open(nil, long)
	name := newID()
	asked, replies := leftAlone(t, m, s, name)
	keys, err := m.do("KEYS", "hf:*:m:"+name).AsStrSlice()
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	m.do("HSET", keys[0], "y", strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
	replies[0] = acquire(t, s, asked[0])
	if replies[0].Retry > time.Second {
		t.Fatalf("Acquire: %+v", replies[0])
	}
	gets(t, s, asked[0], replies[0])
}
