package quorum_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// everywhere waits until each server has n holders of the name on record.
func (g *group) everywhere(t testing.TB, name string, n int) {
	t.Helper()
	for i := range g.servers {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if r, err := member(t, g, i).Inspect(within(t), name); err == nil && len(r.Holders) == n {
				break
			} else if time.Now().After(end) {
				t.Fatalf("server %d: %+v, %v", i+1, r, err)
			}
		}
	}
}

// TestTimedReleaseRefusedByOne: a server that refuses a release for a moment is told of it later, like one that
// was not reached. Else its grant would be in the way for a TTL if another server failed meanwhile.
func TestTimedReleaseRefusedByOne(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	for _, how := range []struct{ name, refuse, heal string }{
		{"NOREPLICAS", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
		{"OOM", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
	} {
		for _, what := range []string{"release", "cancel"} {
			t.Run(how.name+" "+what, func(t *testing.T) {
				t.Parallel()
				g := start(t, 3, ttl+time.Second)
				a, b := open(t, g.backend(g.addrs()), "a", ttl), open(t, g.backend(g.addrs()), "b", ttl)
				other := get(t, a, try("y", "a-y"))
				h := get(t, a, try("x", "a-x"))
				g.everywhere(t, "x", 1)
				g.servers[2].Do(how.refuse)
				if what == "release" {
					if err := a.Release(within(t), h, 0); err != nil {
						t.Errorf("Release: %v", err)
					}
				} else if err := a.Cancel(within(t), "x", "a-x"); err != nil {
					t.Errorf("Cancel: %v", err)
				}
				time.Sleep(200 * time.Millisecond)
				g.servers[2].Do(how.heal)
				for range 3 {
					if changes, err := a.Renew(within(t), []driver.Hold{other}); err != nil || len(changes) != 0 {
						t.Errorf("Renew: %+v, %v", changes, err)
					}
					time.Sleep(200 * time.Millisecond)
				}
				if r, err := member(t, g, 2).Inspect(within(t), "x"); err != nil || len(r.Holders) != 0 {
					t.Errorf("the server that had refused has %d holders on record (%v); want none", len(r.Holders), err)
				}
				g.servers[0].Kill()
				start := time.Now()
				for n := 0; ; n++ {
					r := try("x", "b-"+string(rune('a'+n%26))+string(rune('a'+n/26%26)))
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					reply, err := b.Acquire(ctx, r)
					cancel()
					if reply.Token != 0 {
						break
					}
					if time.Since(start) > 2*ttl {
						t.Fatalf("not granted for %v: %+v, %v", time.Since(start), reply, err)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("with one server of three down the name stood still for %v", d)
				}
			})
		}
	}
}

// TestPlaceWhileRefused: who asks again while a majority refuses keeps its place, or has none at any server.
func TestPlaceWhileRefused(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	g := start(t, 3, ttl+time.Second)
	a, b := open(t, g.backend(g.addrs()), "a", ttl), open(t, g.backend(g.addrs()), "b", ttl)
	h := get(t, a, try("x", "a-x"))
	g.everywhere(t, "x", 1)
	r := try("x", "b-1")
	r.Wait = true
	if reply, err := b.Acquire(within(t), r); err != nil || reply.Wake == nil {
		t.Fatalf("Acquire: %+v, %v; want a place in line", reply, err)
	}
	for _, s := range g.servers[1:] {
		s.Do("CONFIG SET min-replicas-to-write 1")
	}
	reply, err := b.Acquire(within(t), r)
	t.Logf("asked again: %+v, %v; spent %v", reply, err, errors.Is(err, driver.ErrSpent))
	time.Sleep(100 * time.Millisecond)
	for _, s := range g.servers[1:] {
		s.Do("CONFIG SET min-replicas-to-write 0")
	}
	changes, err := b.Renew(within(t), []driver.Hold{{Name: "x", ID: r.ID}})
	t.Logf("Renew: %+v, %v", changes, err)
	time.Sleep(200 * time.Millisecond)
	places := 0
	for i := range g.servers {
		rec, err := member(t, g, i).Inspect(within(t), "x")
		t.Logf("server %d: %d waiters, %v", i+1, rec.Waiting, err)
		places += rec.Waiting
	}
	if places != 0 && places != 3 {
		t.Errorf("the place stands at %d of 3 servers", places)
	}
	if reply.Wake == nil && !errors.Is(err, driver.ErrSpent) && places != 3 {
		t.Errorf("a place was lost that was only refused")
	}
	if err := a.Release(within(t), h, 0); err != nil {
		t.Error(err)
	}
}
