package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

const (
	shortLease = 2 * time.Second
	longLease  = 20 * time.Second
)

// leased is a grant of a short lease.
type leased struct {
	*testing.T
	w *world
	s *session
	r *request
	h driver.Hold

	has, others []int // the servers that granted it at once, a bare majority; the others
}

// lease runs f with a grant of that lease by a bare majority of so many servers. busy: another client
// holds the others, where the grant has a place then; else they do not answer until they are revived.
func lease(t *testing.T, servers int, asked time.Duration, busy bool, f func(leased)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(servers)
		defer func() { _, _ = s.Close(context.Background()), s.b.Close() }()
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, Lease: asked}
		l := leased{T: t, w: w, s: s, r: newRequest(req, servers)}
		l.has, l.others = l.r.order[:l.r.need], l.r.order[l.r.need:]
		for _, i := range l.others {
			w.servers[i].dead = !busy
			if busy {
				w.servers[i].give(simPlace{id: "c", who: s.endpoints[i].at().(*simMember)}, time.Now().Add(time.Hour), 0)
			}
		}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		l.r, l.h = s.find("a"), driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		time.Sleep(completeAfter + 100*time.Millisecond) // the others have a place then, or do not know of it
		f(l)
	})
}

// each changes some servers.
func (l *leased) each(of []int, f func(v *simServer)) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, i := range of {
		f(l.w.servers[i])
	}
}

// token returns the token that a server has given.
func (l *leased) token(server int) (token uint64) {
	l.each([]int{server}, func(v *simServer) { token = v.token })
	return token
}

func silence(v *simServer) { v.dead = true }
func revive(v *simServer)  { v.dead = false }

// renew returns what a renewal reports: 0 if the grant is valid.
func (l *leased) renew(asked time.Duration) driver.State {
	h := l.h
	h.Lease = asked
	changes, err := l.s.Renew(l.Context(), []driver.Hold{h})
	switch {
	case err != nil:
		return driver.Unknown
	case len(changes) == 0:
		return 0
	}
	return changes[0].State
}

// A server that has answered a short renewal proves nothing about a long one, that it did not get.
func TestRenewalsOfDifferentLengths(t *testing.T) {
	lease(t, 3, shortLease, false, func(l leased) {
		l.each(l.has, silence)
		l.each(l.others, revive)
		long := make(chan driver.State, 1)
		go func() { long <- l.renew(longLease) }()
		time.Sleep(10 * time.Millisecond) // it is under way
		l.each(l.has, revive)
		if state := l.renew(shortLease); state != 0 {
			t.Errorf("the short renewal: state %d", state)
		}
		if state := <-long; state != driver.Unknown {
			t.Errorf("the long renewal, which no majority got: state %d; want Unknown", state)
		}
	})
}

// A short lease that is over is not taken again from other servers, although a full TTL is not over.
func TestShortLeaseIsNotRevived(t *testing.T) {
	for asked, revived := range map[time.Duration]bool{shortLease: false, longLease: true} {
		lease(t, 5, asked, false, func(l leased) {
			time.Sleep(2 * shortLease)
			l.each(l.has, silence)
			l.each(l.others, revive)
			for _, i := range l.others {
				l.s.endpoints[i].slow.Store(0)
			}
			if state := l.renew(0); state != driver.Unknown {
				t.Errorf("renewed at servers that do not answer: state %d", state)
			}
			time.Sleep(time.Second)
			l.each(l.others, func(v *simServer) {
				if (v.token != 0) != revived {
					t.Errorf("lease of %v: a server has given token %d after %v", asked, v.token, 2*shortLease)
				}
			})
		})
	}
}

// A renewal that no majority gets leaves a few servers with a longer lease. When another client has had
// the lock since, servers that then grant it to a request that comes late make up no majority with them.
func TestLapsedLeaseStaysLapsed(t *testing.T) {
	for what, late := range map[string]time.Duration{
		"renewed after it":                       0,
		"renewed before it, which arrives later": 2500 * time.Millisecond,
	} {
		lease(t, 5, shortLease, true, func(l leased) {
			begin, few := time.Now(), l.has[:1]
			l.each(l.has[1:], silence)
			go l.renew(longLease)
			time.Sleep(10 * time.Millisecond)
			l.each(l.has[1:], revive)
			answer := make(chan driver.State, 1)
			if late > 0 {
				time.Sleep(shortLease - 200*time.Millisecond - time.Since(begin))
				l.w.mu.Lock()
				l.w.late = late
				l.w.mu.Unlock()
				go func() { answer <- l.renew(0) }()
			}
			time.Sleep(shortLease + modelStep + 100*time.Millisecond - time.Since(begin))
			l.each(l.others, func(v *simServer) { // b had a majority with one of them
				v.queue = nil
				v.give(simPlace{id: "a", who: l.s.endpoints[0].at().(*simMember)}, time.Now().Add(longLease), 0)
			})
			time.Sleep(50 * time.Millisecond)
			n := 0
			l.each(l.r.order, func(v *simServer) {
				v.advance(0)
				if v.token != 0 && v.holder.id == "a" {
					n++
				}
			})
			if want := len(few) + len(l.others); n != want || n < l.r.need {
				t.Fatalf("%d servers have the grant; want %d, a majority", n, want)
			}
			if late == 0 {
				answer <- l.renew(0)
			}
			if state := <-answer; state != driver.Gone {
				t.Errorf("%s: state %d; want Gone", what, state)
			}
		})
	}
}

// A server that has ended the grant, and gave it again to a request that came late, has not had it all the
// time. So it does not count after the lease, although it renews the grant under the old token as well.
func TestGrantedAgainIsAnotherGrant(t *testing.T) {
	for what, again := range map[string]bool{"granted again": true, "the same grant": false} {
		lease(t, 5, shortLease, false, func(l leased) {
			one := l.has[:1]
			l.each(one, silence)
			if state := l.renew(longLease); state != driver.Unknown {
				t.Fatalf("a renewal that no majority got: state %d", state)
			}
			time.Sleep(2 * shortLease)
			l.each(one, func(v *simServer) {
				revive(v)
				if again { // and another client has had a majority with this server meanwhile
					v.give(simPlace{id: "a", who: l.s.endpoints[one[0]].at().(*simMember)}, time.Now().Add(longLease), 0)
				} else { // the renewal has reached this server, too
					v.end = time.Now().Add(longLease)
				}
			})
			if state := l.renew(0); (state == driver.Gone) != again || !again && state != 0 {
				t.Errorf("%s: state %d after the lease", what, state)
			}
		})
	}
}

// A release after the lease does not count as done if a majority has not done it.
func TestReleaseOfALapsedLease(t *testing.T) {
	lease(t, 5, shortLease, false, func(l leased) {
		l.each(l.has[1:], silence)
		if state := l.renew(longLease); state != driver.Unknown {
			t.Fatalf("a renewal that no majority got: state %d", state)
		}
		time.Sleep(2 * shortLease)
		if err := l.s.Release(l.Context(), l.h, 0); !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("Release at one of five servers: %v; want ErrUncertain", err)
		}
	})
}

// No server keeps a lease for longer than the majority that has proved it, whatever brought it there.
func TestNoServerKeepsALeaseLonger(t *testing.T) {
	const more = modelStep + 100*time.Millisecond
	ends := func(l leased, of []int, least, most time.Duration) {
		t.Helper()
		l.each(of, func(v *simServer) {
			if left := time.Until(v.end); v.token == 0 || v.holder.id != "a" || left < least || left > most+more {
				t.Errorf("%s has it under %d for %v; want a for %v to %v", v.holder.id, v.token, left, least, most+more)
			}
		})
	}
	t.Run("completed", func(t *testing.T) {
		lease(t, 3, longLease, false, func(l leased) {
			time.Sleep(longLease / 2)
			l.each(l.others, revive)
			for _, i := range l.others {
				l.s.endpoints[i].slow.Store(0)
			}
			if state := l.renew(shortLease); state != 0 {
				t.Fatalf("state %d", state)
			}
			time.Sleep(time.Second)
			ends(l, l.others, shortLease, longLease/2)
		})
	})
	for what, asked := range map[string]time.Duration{"of a short lease": shortLease, "of a full one": 0} {
		t.Run("its places, "+what, func(t *testing.T) {
			lease(t, 5, asked, true, func(l leased) {
				l.each(l.has[1:], silence)
				time.Sleep(shortLease / 4)
				if state := l.renew(0); state != driver.Unknown {
					t.Fatalf("a renewal that no majority got: state %d", state)
				}
				time.Sleep(time.Second)
				l.each(l.others, func(v *simServer) {
					most := l.r.proof.end() - l.s.clock.now() + l.r.proof.extra + 100*time.Millisecond
					if i := v.find("a"); i < 0 || time.Until(v.queue[i].deadline) > most {
						t.Errorf("the queue is %v; want a place of a for %v at most", v.queue, most)
					}
				})
			})
		})
	}
	t.Run("raised", func(t *testing.T) {
		lease(t, 3, shortLease, false, func(l leased) {
			time.Sleep(shortLease / 2)
			if err := l.s.agree(l.Context(), l.r, l.s.term(l.s.stamp.Add(1), shortLease)); err != nil {
				t.Fatal(err)
			}
			ends(l, l.has, shortLease, shortLease)
		})
	})
	t.Run("yielded", func(t *testing.T) {
		partly(t, func(l leased) {
			before := l.token(0)
			l.s.claimed(l.s.endpoints[0], "a", 0, "nobody")
			time.Sleep(50 * time.Millisecond) // it is queued again, and gets the name back
			if l.token(0) == before {
				t.Fatal("not yielded")
			}
			ends(l, []int{0}, 0, shortLease)
		})
	})
}

// partly runs f with a request of a short lease that has one server of three and waits at the others.
func partly(t *testing.T, f func(leased)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		defer func() { _, _ = s.Close(context.Background()), s.b.Close() }()
		for i, v := range w.servers[1:] {
			v.give(simPlace{id: "c", who: s.endpoints[i+1].at().(*simMember)}, time.Now().Add(time.Hour), 0)
		}
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, Lease: shortLease}
		l := leased{T: t, w: w, s: s}
		if reply, err := s.Acquire(t.Context(), req); err != nil || reply.Token != 0 || l.token(0) == 0 {
			t.Fatal(reply, err)
		}
		f(l)
	})
}

// A place whose caller does not ask again expires, although the request claims other servers as long
// as it has one.
func TestShortPlaceIsNotTakenAgain(t *testing.T) {
	partly(t, func(l leased) {
		time.Sleep(3*shortLease + modelStep)
		l.each([]int{0, 1, 2}, func(v *simServer) {
			v.advance(0)
			if v.token != 0 && v.holder.id == "a" || v.find("a") >= 0 {
				t.Errorf("held by %s, waiting: %v", v.holder.id, v.queue)
			}
		})
	})
}

// A short renewal takes nothing from a longer lease: a server that was asked later counts as long as
// the longer one lasts.
func TestShortRenewalOfALongLease(t *testing.T) {
	lease(t, 3, longLease, false, func(l leased) {
		l.each(l.others, revive)
		for _, i := range l.others {
			l.s.endpoints[i].slow.Store(0)
		}
		if state := l.renew(shortLease); state != 0 { // and the other server is asked
			t.Fatalf("state %d", state)
		}
		time.Sleep(longLease / 4)
		l.each(l.has[1:], silence)
		if state := l.renew(0); state != 0 {
			t.Errorf("renewed at a majority: state %d", state)
		}
	})
}
