package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// simulated is a session at so many servers of the model.
func simulated(servers int) (*world, *session) {
	w := &world{rng: rand.New(rand.NewPCG(1, 2)), ttl: modelTTL, quarantine: modelQuarantine}
	b := &Backend{quarantine: modelQuarantine}
	for i := range servers {
		w.servers = append(w.servers, &simServer{w: w})
		b.servers = append(b.servers, newServer(Server{Name: fmt.Sprint(i)}))
	}
	b.agree()
	return w, w.session(b, "s")
}

// session is another session at the same servers.
func (w *world) session(b *Backend, id string) *session {
	s := newSession(b, driver.SessionConfig{ID: id, TTL: modelTTL})
	for k, p := range s.endpoints {
		var here member = &simMember{w: w, v: w.servers[k], s: s, p: p, ctx: s.life, asks: map[string]*simAsk{},
			undoing: map[string]int{}, limits: map[string]uint64{}}
		p.here.Store(&here)
		s.clock.saw(k, s.clock.now(), time.Duration(w.servers[k].clock())*time.Microsecond)
	}
	return s
}

// holding is simulated, and a lock that the session holds. All ends with the test.
func holding(t *testing.T, servers int) (*world, *session, driver.Hold) {
	return holdingFor(t, servers, 0)
}

// holdingFor is holding with a minimum hold.
func holdingFor(t *testing.T, servers int, minHold time.Duration) (*world, *session, driver.Hold) {
	w, s := simulated(servers)
	t.Cleanup(func() { _, _ = s.Close(context.Background()), s.b.Close() })
	reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1,
		MinHold: minHold})
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	return w, s, driver.Hold{Name: "x", ID: "a", Token: reply.Token}
}

// renews renews h after a third of a TTL, in which p has answered a ping.
func renews(t *testing.T, s *session, p *endpoint, h driver.Hold) {
	t.Helper()
	time.Sleep(modelTTL / 3)
	p.slow.Store(0)
	if _, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil {
		t.Fatal(err)
	}
}

// TestBrokenStaysBroken: a server has ended a grant while others are silent, so a majority may or
// may not have it. The session does not take it again from free servers: an operator may have
// broken it, and another client may have had the lock since.
func TestBrokenStaysBroken(t *testing.T) {
	for what, broken := range map[string]bool{"broken": true, "silent only": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := simulated(5)
				defer func() { _, _ = s.Close(context.Background()), s.b.Close() }()
				reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				w.mu.Lock()
				has, left := 0, 0
				for _, v := range w.servers {
					switch {
					case v.token == 0:
						continue
					case has < 2:
						v.dead = true
					case broken:
						v.token = 0
					}
					has++
				}
				w.mu.Unlock()
				if has != 3 {
					t.Fatalf("%d servers were asked; want a bare majority", has)
				}
				for range 3 {
					time.Sleep(modelTTL / 5)
					_, _ = s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a", Token: reply.Token}})
				}
				w.mu.Lock()
				for _, v := range w.servers {
					if v.token != 0 && !v.dead {
						left++
					}
				}
				w.mu.Unlock()
				// Servers that were not asked before are asked, as long as no operator may have
				// broken the grant.
				if (left == 3) == broken {
					t.Errorf("%d of the 3 servers that answer have granted it", left)
				}
			})
		})
	}
}
