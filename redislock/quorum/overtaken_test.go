package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// askedAgain is a server that answers for the request with reply.
type askedAgain struct {
	member
	reply driver.Reply
}

// answersAfter is how long a server takes for an answer, on the clock of the bubble.
const answersAfter = time.Second

func (m *askedAgain) Raise(_ context.Context, h driver.Hold, _ uint64, _ time.Duration) (uint64, time.Duration, error) {
	if m.reply.Token != h.Token {
		return 0, 0, driver.ErrGone
	}
	return h.Token, time.Second, nil
}

func (m *askedAgain) Close(context.Context) error { return nil }

// Ask answers some time later.
func (m *askedAgain) Ask(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error) {
	time.Sleep(answersAfter)
	return m.reply, 1, nil
}

// TestWaitingAfterPush: servers push a grant, and answer a renewal that the request waits. The push
// may have overtaken the answer, or be for an earlier place. So the servers are asked again, and
// only that answer counts.
func TestWaitingAfterPush(t *testing.T) {
	for name, want := range map[string]uint64{"the push is old": 0, "the push overtook the answer": 7} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &Backend{quarantine: time.Minute}
				for range 3 {
					b.servers = append(b.servers, newServer(Server{}))
				}
				b.agree()
				s := newSession(b, driver.SessionConfig{ID: "s", TTL: time.Minute})
				r := newRequest(&driver.Request{ID: "s-1", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}, 3)
				s.requests[r.driver.ID] = r
				const pushed, renewed = 5, 6
				s.stamp.Store(renewed)
				latest := term{stamp: renewed, lease: time.Minute}
				for i, p := range s.endpoints {
					var here member = &askedAgain{reply: driver.Reply{Token: want, Wake: make(chan uint64)}}
					p.here.Store(&here)
					r.votes[i] = vote{state: granted, token: 7, until: time.Hour, sent: pushed, answered: pushed}
				}
				r.since = latest // the caller may count a lease from then on
				holds := []hold{{Hold: driver.Hold{Name: "x", ID: r.driver.ID}, r: r, term: latest}}
				for _, p := range s.endpoints {
					s.learn(p, holds, []part{{term: latest}}, []driver.Change{{Index: 0, State: driver.Waiting}}, nil)
				}
				r.mu.Lock()
				if token := r.agreed(latest); token != 0 {
					t.Errorf("granted with token %d by servers that said that it waits", token)
				}
				r.mu.Unlock()
				time.Sleep(2 * answersAfter)
				synctest.Wait()
				r.mu.Lock()
				if r.token != want {
					t.Errorf("token %d after they were asked again; want %d", r.token, want)
				}
				r.mu.Unlock()
				s.shutDown()
			})
		})
	}
}
