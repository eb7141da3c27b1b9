package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestRedissonForced: grants of readers and of permits that Java has ended are in nobody's way.
func TestRedissonForced(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, b := m.open(nil, long)
	for what, ask := range map[string]func(name string) (first, second *driver.Request){
		"readers": func(name string) (first, second *driver.Request) { return reader(name), writer(name) },
		"permits": func(name string) (first, second *driver.Request) {
			return permits(name, 2, 2), permits(name, 1, 2)
		},
	} {
		name := newID()
		first, second := ask(name)
		h := granted(t, a, first)
		reply := acquire(t, a, second)
		m.do("DEL", name, "{"+name+"}:timeout")
		if rec, err := b.Inspect(t.Context(), name); err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != second.ID {
			t.Errorf("%s: Inspect: %+v, %v", what, rec, err)
		}
		if token := gets(t, a, second, reply); token <= h.Token {
			t.Errorf("%s: token %d after %d", what, token, h.Token)
		}
		if changes, err := a.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) != 1 ||
			changes[0].State != driver.Gone {
			t.Errorf("%s: Renew: %+v, %v", what, changes, err)
		}
	}
}

// TestRedissonReclaimed: a permit that a client in Java has taken away is told as lost, and the record
// then has room for another.
func TestRedissonReclaimed(t *testing.T) {
	t.Parallel()
	m, name := newMixed(t), newID()
	a, b := m.open(nil, 10*time.Minute)
	other := granted(t, a, permits(name, 1, 3))
	brief := permits(name, 1, 3)
	brief.Lease = time.Minute
	h := granted(t, a, brief)
	m.reclaim(name, 5*time.Minute)
	if changes, err := a.Renew(t.Context(), []driver.Hold{other, h}); err != nil || len(changes) != 1 ||
		changes[0].State != driver.Gone || changes[0].Index != 1 {
		t.Errorf("Renew: %+v, %v", changes, err)
	}
	rec, err := b.Inspect(t.Context(), name)
	if err != nil || len(rec.Holders) != 1 || rec.Limit != 3 {
		t.Errorf("Inspect: %+v, %v", rec, err)
	}
	granted(t, a, permits(name, 2, 3))
}

// TestRedissonInspected: Inspect changes nothing of a lock that Java took after one in Go had ended.
func TestRedissonInspected(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	brief := exclusive(name)
	brief.Lease = 100 * time.Millisecond
	granted(t, a, brief)
	until(t, "the lease has ended", func() bool { return m.lock(name) })
	if rec, err := b.Inspect(t.Context(), name); err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != m.h ||
		rec.Holders[0].Age != 0 { // Redisson does not record it
		t.Errorf("Inspect: %+v, %v", rec, err)
	}
	if !m.unlock(name) {
		t.Error("Java has lost its lock")
	}
}

// TestRedissonBroken: an operator breaks grants of Java, and Go's waiters get the lock.
func TestRedissonBroken(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, b := m.open(nil, long)
	for what, take := range map[string]func(string) bool{"lock": m.lock, "write": m.write, "read": m.read,
		"a writer that reads": func(name string) bool { return m.write(name) && m.read(name) }} {
		name := newID()
		if !take(name) {
			t.Fatalf("%s: not taken", what)
		}
		r := exclusive(name)
		if what != "lock" {
			r = writer(name)
		}
		reply := acquire(t, a, r)
		rec, err := b.Inspect(t.Context(), name)
		if err != nil || len(rec.Holders) == 0 || rec.Waiting != 1 {
			t.Fatalf("%s: Inspect: %+v, %v", what, rec, err)
		}
		for _, h := range rec.Holders {
			if err := b.Break(t.Context(), name, h.Token); err != nil {
				t.Errorf("%s: Break(%d): %v", what, h.Token, err)
			}
		}
		gets(t, a, r, reply)
		if m.exists("{" + name + "}:" + m.h + ":rwlock_timeout:1") {
			t.Errorf("%s: a slot is left", what)
		}
	}
}

// TestRedissonDowngrade: a writer in Go that becomes a reader keeps its place in Java's key, and lets
// readers of Java in.
func TestRedissonDowngrade(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	h := granted(t, a, writer(name))
	if m.read(name) || m.write(name) {
		t.Fatal("two holders")
	}
	told := hears(t, m, "redisson_rwlock:{"+name+"}")
	if err := a.Downgrade(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if s := <-told; s != "1" {
		t.Errorf("told %q", s)
	}
	if m.write(name) || !m.read(name) {
		t.Error("a reader may enter, and no writer")
	}
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Error(err)
	}
	if !m.exists(name) || m.number("HLEN", name) != 2 || m.number("PTTL", name) < 1 {
		t.Error("Java's reader has lost its lock")
	}
}

// TestRedissonForcedWhileRefused: grants that Java has ended are not listed either while the server takes
// no writes, and the listing succeeds.
func TestRedissonForcedWhileRefused(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, b := m.open(nil, long)
	for what, ask := range map[string]*driver.Request{"lock": exclusive(newID()), "writer": writer(newID()),
		"reader": reader(newID()), "permits": permits(newID(), 2, 2)} {
		granted(t, a, ask)
		m.do("DEL", ask.Name, "{"+ask.Name+"}:timeout")
		m.do("CONFIG", "SET", "min-replicas-to-write", "1")
		if rec, err := b.Inspect(t.Context(), ask.Name); err != nil || len(rec.Holders) != 0 {
			t.Errorf("%s: Inspect: %+v, %v", what, rec, err)
		}
		if _, err := b.List(t.Context(), "", "", 10); err != nil {
			t.Errorf("%s: List: %v", what, err)
		}
		m.do("CONFIG", "SET", "min-replicas-to-write", "0")
	}
}
