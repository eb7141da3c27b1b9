package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// joiningThird is a session that is still joining the last of three servers, and its session there.
func joiningThird(t *testing.T) (*world, *session, member) {
	w, s := three(t)
	p := s.endpoints[2]
	m := p.at()
	p.here.Store(nil)
	t.Cleanup(func() { put(p, m) }) // for Close
	return w, s, m
}

func asks(t *testing.T, s *session, wait bool) (driver.Reply, time.Duration) {
	t.Helper()
	reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	return reply, s.clock.now()
}

// TestJoining: a new session is still joining one of three servers, and another has a grant that nobody ends. So the
// server that is late decides whether a request that does not wait gets the lock.
func TestJoining(t *testing.T) {
	const when = 200 * time.Millisecond
	for what, c := range map[string]struct {
		comes, answered time.Duration // since the session's begin
		try             func(p *endpoint, m member)
		granted         bool
	}{
		"joins":           {0, when, func(p *endpoint, m member) { put(p, m) }, true},
		"refuses to join": {0, when, func(p *endpoint, _ member) { p.fails(driver.ErrRefused) }, false},
		"never answers":   {0, decisive, nil, false},
		"later request":   {time.Minute, time.Minute, nil, false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, m := joiningThird(t)
				w.votesFor(s, 0, "left behind", 0, time.Hour)
				if p := s.endpoints[2]; c.try != nil {
					time.AfterFunc(when, func() { c.try(p, m); s.joinTried(p) })
				}
				time.Sleep(c.comes)
				reply, at := asks(t, s, false)
				if (reply.Token != 0) != c.granted || at < c.answered || at > c.answered+2*grace {
					t.Errorf("%+v, %v after the session's begin; want granted: %v, after %v", reply, at, c.granted, c.answered)
				}
				if !c.granted && reply.Holder.ID != "left behind" {
					t.Errorf("refused because of %v", reply.Holder)
				}
			})
		})
	}
}

// TestJoiningWhileWaiting: a request that waits is asked for at the server as soon as it is joined.
func TestJoiningWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, m := joiningThird(t)
		w.votesFor(s, 0, "left behind", 0, time.Hour)
		time.AfterFunc(5*time.Second, func() { put(s.endpoints[2], m); s.joinTried(s.endpoints[2]) })
		reply, at := asks(t, s, true)
		if reply.Token != 0 || at > 2*grace {
			t.Fatalf("%+v after %v", reply, at)
		}
		token := <-reply.Wake
		if at := s.clock.now(); token == 0 || at < 5*time.Second || at > 6*time.Second {
			t.Errorf("wake-up with token %d after %v", token, at)
		}
	})
}

// TestJoiningOfNoUse: the request would not get a majority from the server that is late, so it does not wait for it.
func TestJoiningOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, _ := joiningThird(t)
		for i := range 2 {
			w.votesFor(s, i, "holder", 0, time.Hour)
		}
		if reply, at := asks(t, s, false); reply.Token != 0 || at > grace {
			t.Errorf("%+v after %v", reply, at)
		}
	})
}

// TestJoiningEnds: the caller's context will end. What the servers have said is the answer, before it does. This holds
// for far servers, too, and if the server that has been joined is silent.
func TestJoiningEnds(t *testing.T) {
	for limit := 200 * time.Millisecond; limit < time.Second; limit += 20 * time.Millisecond {
		for trip := range 3 {
			for _, joins := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w, s, m := joiningThird(t)
					w.votesFor(s, 0, "left behind", 0, time.Hour)
					w.late = time.Duration(trip) * 40 * time.Millisecond
					if joins {
						time.AfterFunc(150*time.Millisecond, func() { joinsSilent(w, s, m) })
					}
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					reply, err := s.Acquire(ctx, &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1})
					if at := s.clock.now(); err != nil || reply.Token != 0 || at >= limit {
						t.Errorf("%+v, %v after %v of %v, trips of %v; want a refusal", reply, err, at, limit, w.late)
					}
					w.mu.Lock()
					w.servers[2].dead = false
					w.mu.Unlock()
					time.Sleep(4 * w.late)
					if n := w.has("a"); n > 0 {
						t.Errorf("%d servers have a grant for nobody", n)
					}
				})
			}
		}
	}
}

// joinsSilent makes the session join its third server, which does not answer any more.
func joinsSilent(w *world, s *session, m member) {
	w.mu.Lock()
	w.servers[2].dead = true
	w.mu.Unlock()
	put(s.endpoints[2], m)
	s.joinTried(s.endpoints[2])
}

// TestJoiningThenSilent: the server has been joined and does not answer, so the refusal stands.
func TestJoiningThenSilent(t *testing.T) {
	for _, when := range []time.Duration{100, 500, 900} {
		synctest.Test(t, func(t *testing.T) {
			w, s, m := joiningThird(t)
			w.votesFor(s, 0, "left behind", 0, time.Hour)
			time.AfterFunc(when*time.Millisecond, func() { joinsSilent(w, s, m) })
			if reply, at := asks(t, s, false); reply.Token != 0 || reply.Holder.ID != "left behind" || at > decisive+2*grace {
				t.Errorf("%+v after %v", reply, at)
			}
			w.mu.Lock()
			w.servers[2].dead = false
			w.mu.Unlock()
		})
	}
}

// TestJoiningKeepsNobodyOut: while such a request waits for its next try, another client may have the lock. It reaches
// all servers.
func TestJoiningKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, _ := joiningThird(t)
		w.votesFor(s, 0, "left behind", 0, time.Hour)
		other := w.session(s.b, "other")
		defer func() { _ = other.Close(context.Background()) }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			asks(t, s, false)
		}()
		time.Sleep(10 * time.Millisecond)
		reply, err := other.Acquire(t.Context(), &driver.Request{ID: "b", Name: "x", Mode: driver.Exclusive, N: 1})
		if err != nil || reply.Token == 0 {
			t.Errorf("%+v, %v", reply, err)
		}
		<-done
	})
}
