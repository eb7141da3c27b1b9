package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// shows waits until the record of the name at server i satisfies ok.
func (g *group) shows(t testing.TB, i int, name, what string, ok func(driver.Record) bool, meanwhile func()) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		r, err := member(t, g, i).Inspect(within(t), name)
		if err == nil && ok(r) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("server %d: %+v, %v; want %s", i+1, r, err, what)
		}
		meanwhile()
	}
}

// everywhere waits until each server has one holder of the name on record. Renewals, if they are
// what happens meanwhile, also reach a server that was not connected at the time of the grant.
func (g *group) everywhere(t testing.TB, name string, meanwhile func()) {
	t.Helper()
	for i := range g.servers {
		g.shows(t, i, name, "one holder", func(r driver.Record) bool { return len(r.Holders) == 1 }, meanwhile)
	}
}

// misses are ways in which the third server does not receive or do a request, until it is healed.
var misses = map[string]func(g *group, ways proxies) (heal func()){
	"unreachable": func(_ *group, ways proxies) func() { ways[2].Refuse(); return ways[2].Heal },
	"NOREPLICAS":  func(g *group, _ proxies) func() { return g.refusal(2, "min-replicas-to-write") },
	"OOM":         func(g *group, _ proxies) func() { return g.refusal(2, "maxmemory") },
}

// refusal makes server i refuse writes by a setting of 1.
func (g *group) refusal(i int, setting string) (heal func()) {
	g.servers[i].Do("CONFIG SET " + setting + " 1")
	return func() { g.servers[i].Do("CONFIG SET " + setting + " 0") }
}

// renewals renews what must stay. A place is reported as waiting, and a hold as unknown if the answers of a
// majority are late.
func renewals(t testing.TB, s driver.Session, holds ...driver.Hold) func() {
	gone := func(c driver.Change) bool { return c.State == driver.Gone }
	return func() {
		t.Helper()
		changes, err := s.Renew(within(t), holds)
		if err != nil && !passing(err) || slices.ContainsFunc(changes, gone) {
			t.Errorf("Renew: %+v, %v", changes, err)
		}
	}
}

// granted asks again and again until the request is granted, under a new ID if the request before has ended.
func granted(t testing.TB, s driver.Session, r *driver.Request, meanwhile func()) {
	t.Helper()
	id := r.ID
	for end, n := time.Now().Add(20*time.Second), 0; ; {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		reply, err := s.Acquire(ctx, r)
		cancel()
		if reply.Token != 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not granted: %+v, %v", r.Name, reply, err)
		}
		if err == nil || errors.Is(err, driver.ErrSpent) { // else a server may have granted it
			n++
			r.ID = fmt.Sprint(id, "-", n)
		}
		meanwhile()
		time.Sleep(20 * time.Millisecond)
	}
}

// TestReleaseMissedByOne: a server that did not receive a release or a cancel, or refused it for a
// moment, gets it later. Otherwise its grant would block others for a TTL, a minute here, if
// another server failed meanwhile.
func TestReleaseMissedByOne(t *testing.T) {
	t.Parallel()
	for how, miss := range misses {
		for what, end := range map[string]func(driver.Session, driver.Hold) error{
			"release": func(s driver.Session, h driver.Hold) error { return s.Release(within(t), h, 0) },
			"cancel":  func(s driver.Session, h driver.Hold) error { return s.Cancel(within(t), h.Name, h.ID) },
		} {
			t.Run(how+" "+what, func(t *testing.T) {
				t.Parallel()
				g := start(t, 3, time.Minute+time.Second)
				ways := g.proxies()
				a, b := open(t, g.backend(ways.addrs()), "a", time.Minute), open(t, g.backend(g.addrs()), "b", time.Minute)
				other, h := get(t, a, try("y", "a-y")), get(t, a, try("x", "a-x"))
				g.everywhere(t, "x", renewals(t, a, other, h))
				heal := miss(g, ways)
				if err := end(a, h); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				heal()
				g.shows(t, 2, "x", "no holder", func(r driver.Record) bool { return len(r.Holders) == 0 }, renewals(t, a, other))
				g.servers[0].Kill()
				granted(t, b, try("x", "b"), func() {})
			})
		}
	}
}

// TestPlaceWhileRefused: a waiter that asks again while a majority refuses writes keeps its place.
func TestPlaceWhileRefused(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute+time.Second)
	a, b := open(t, g.backend(g.addrs()), "a", time.Minute), open(t, g.backend(g.addrs()), "b", time.Minute)
	h := get(t, a, try("x", "a-x"))
	g.everywhere(t, "x", renewals(t, a, h))
	r := try("x", "b-1")
	r.Wait = true
	if reply, err := b.Acquire(within(t), r); err != nil || reply.Wake == nil {
		t.Fatalf("Acquire: %+v, %v; want a place in the queue", reply, err)
	}
	inLine := func(rec driver.Record) bool { return rec.Waiting == 1 }
	for i := range g.servers {
		g.shows(t, i, "x", "a waiter", inLine, renewals(t, b, driver.Hold{Name: r.Name, ID: r.ID}))
	}
	first, second := g.refusal(1, "min-replicas-to-write"), g.refusal(2, "min-replicas-to-write")
	reply, err := b.Acquire(within(t), r)
	if reply.Token != 0 || errors.Is(err, driver.ErrSpent) {
		t.Fatalf("asked again while a majority refuses: %+v, %v; want the place", reply, err)
	}
	first()
	second()
	changes, err := b.Renew(within(t), []driver.Hold{{Name: "x", ID: r.ID}})
	if err != nil && !passing(err) || len(changes) > 0 && changes[0].State == driver.Gone {
		t.Errorf("Renew: %+v, %v", changes, err)
	}
	time.Sleep(100 * time.Millisecond) // a cancellation would arrive in that time
	for i := range g.servers {
		g.shows(t, i, "x", "the waiter", inLine, func() {})
	}
	if err := a.Release(within(t), h, 0); err != nil {
		t.Error(err)
	}
}
