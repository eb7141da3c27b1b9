package redislock_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// leftAlone hands a lock on among waiters of s until it is left to Java for a moment. Then those requests
// wait that it returns, in their order.
func leftAlone(t *testing.T, m *mixed, s driver.Session, name string) (
	asked []*driver.Request, replies []driver.Reply) {
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

// turns hands a name on n times among waiters of s, and returns how often it was free for Java meanwhile.
// in is called then, and must not keep the name.
func turns(t *testing.T, n int, ask func() *driver.Request, free func(name string) bool, in func(name string),
	s driver.Session) (seen int) {
	t.Helper()
	first := ask()
	h := granted(t, s, first)
	for range n {
		r := ask()
		reply := acquire(t, s, r)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		if free(first.Name) {
			seen++
			in(first.Name)
		}
		h = driver.Hold{Name: first.Name, ID: r.ID, Token: gets(t, s, r, reply)}
	}
	return seen
}

// TestRedissonTurns: Java's turn comes, also when sessions in Go have left a moment ago.
func TestRedissonTurns(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, _ := m.open(nil, long)
	name := newID()
	hears(t, m, "redisson_lock__channel:{"+name+"}") // as a client in Java that waits
	h := granted(t, s, exclusive(name))
	for range 3 {
		other, _ := m.open(nil, long)
		acquire(t, other, exclusive(name))
		if err := other.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Release(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	n := turns(t, 60, func() *driver.Request { return exclusive(name) },
		func(name string) bool { return !m.exists(name) }, func(string) {}, s)
	if n < 3 {
		t.Errorf("Java had %d turns", n)
	}
}

// TestRedissonTurnsWhenTaken: Java's turn comes often while it takes what it is left: also permits of an
// RSemaphore, which has no owners.
func TestRedissonTurnsWhenTaken(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, _ := m.open(&redisson.Config{PlainSemaphores: true}, long)
	name := newID()
	hears(t, m, "redisson_sc:{"+name+"}")
	waiting := permits(name, 1, 1)
	n := turns(t, 60, func() *driver.Request { return permits(name, 1, 1) },
		func(name string) bool { return m.number("GET", name) == 1 },
		func(name string) {
			m.do("DECRBY", name, "1")
			waiting.Wait = false
			acquire(t, s, waiting) // somebody in Go looks
			m.do("INCRBY", name, "1")
			m.do("PUBLISH", "redisson_sc:{"+name+"}", "1")
		}, s)
	if n < 8 {
		t.Errorf("Java had %d turns", n)
	}
}

// TestRedissonTurnsOfReaders: readers in Go that enter together do not count as clients in Java.
func TestRedissonTurnsOfReaders(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, _ := m.open(nil, long)
	name := newID()
	hears(t, m, "redisson_rwlock:{"+name+"}") // as a client in Java that waits
	h, n := granted(t, s, writer(name)), 0
	for range 40 {
		asked := []*driver.Request{reader(name), reader(name), writer(name)}
		var replies []driver.Reply
		for _, r := range asked {
			replies = append(replies, acquire(t, s, r))
		}
		for i, r := range asked {
			if err := s.Release(t.Context(), h, 0); err != nil {
				t.Fatal(err)
			}
			if !m.exists(name) {
				n++
			}
			h = driver.Hold{Name: name, ID: r.ID, Token: gets(t, s, r, replies[i])}
		}
	}
	if n < 1 || n > 6 {
		t.Errorf("Java had %d turns in 80 hand-overs and took none; want 4", n)
	}
}

// TestRedissonTurnsBesideFair: Java's turn comes also for semaphores and read/write locks of a client whose
// mutexes are fair.
func TestRedissonTurnsBesideFair(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, _ := m.open(&redisson.Config{Fair: true}, long)
	sem, rw := newID(), newID()
	hears(t, m, "redisson_sc:{"+sem+"}")
	hears(t, m, "redisson_rwlock:{"+rw+"}")
	if n := turns(t, 60, func() *driver.Request { return permits(sem, 1, 1) },
		func(name string) bool { return m.number("GET", name) == 1 }, func(string) {}, s); n < 3 {
		t.Errorf("Java had %d turns for permits", n)
	}
	if n := turns(t, 60, func() *driver.Request { return writer(rw) },
		func(name string) bool { return !m.exists(name) }, func(string) {}, s); n < 3 {
		t.Errorf("Java had %d turns to write", n)
	}
}
