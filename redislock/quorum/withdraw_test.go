package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// letsGo is a server that says why it cannot end a grant, or that it has ended one of which its client had not heard.
type letsGo struct {
	member
	pass error
	had  bool
}

func (m *letsGo) Pass(context.Context, driver.Hold, time.Duration, uint64) error { return m.pass }
func (m *letsGo) Withdraw(context.Context, string, string) (bool, error)         { return m.had, nil }
func (m *letsGo) Cancel(context.Context, string, string) error                   { return nil }
func (m *letsGo) Close(context.Context) error                                    { return nil }

// TestReleaseUnheard: a majority of five has been heard to grant, and one of it has forgotten since. Whether the lock was
// lost by that is for the two to say that have not been heard.
func TestReleaseUnheard(t *testing.T) {
	for _, c := range []struct {
		what string
		seat seat // of the last two
		had  bool
		want error
	}{
		{"in line, and granted meanwhile", seat{state: waiting, sent: 5, heard: 5}, true, nil},
		{"asked, and granted", seat{sent: 5}, true, nil},
		{"in line", seat{state: waiting, sent: 5, heard: 5}, false, driver.ErrGone},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &Backend{quarantine: time.Minute}
				for range 5 {
					b.servers = append(b.servers, &server{})
				}
				s := newSession(b, driver.SessionConfig{ID: "s", TTL: time.Second})
				defer s.leave()
				r := newRequest(&driver.Request{ID: "s-1", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}, 5)
				r.token, r.proved = 7, s.clock.now()
				s.requests[r.driver.ID] = r
				for i, p := range s.posts {
					one := &letsGo{had: c.had}
					if i == 0 {
						one.pass = driver.ErrGone
					}
					var here member = one
					p.here.Store(&here)
					if r.seats[i] = c.seat; i < 3 {
						r.seats[i] = seat{state: granted, token: 7, sent: 5, heard: 5}
					}
				}
				if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "s-1", Token: 7}, 0); !errors.Is(err, c.want) {
					t.Errorf("Release: %v; want %v", err, c.want)
				}
			})
		})
	}
}
