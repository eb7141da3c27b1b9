package quorum_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestPlaceOfAnEndedGrant: a renewal that no majority gets does not make the places of the grant longer
// either. Otherwise a place would get the lock after the grant has ended and another client has had it,
// and the grant could be adopted under its old token.
func TestPlaceOfAnEndedGrant(t *testing.T) {
	t.Parallel()
	const ttl, short = time.Minute, 5 * time.Second
	g := start(t, 3, time.Minute)
	info := driver.Info{Host: "h"}.String()
	join := func(i int) *redislock.MemberSession {
		s, err := member(t, g, i).Join(within(t), driver.SessionConfig{ID: "c", TTL: ttl, Info: info},
			redislock.Hooks{Pushed: func(string) {}, Claimed: func(string, int, string) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(within(t)) })
		return s
	}
	other := []*redislock.MemberSession{join(0), join(1), join(2)}
	ask := func(i int) driver.Hold { // another client asks a server
		req := &driver.Request{ID: "c-1", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, Info: info}
		reply, _, err := other[i].Ask(within(t), req, 0)
		if err != nil {
			t.Fatal(err)
		}
		return driver.Hold{Name: "x", ID: req.ID, Token: reply.Token}
	}
	ask(2)
	ways := g.proxies()
	begin := func(addrs []string, id string) driver.Session {
		b := g.backend(addrs)
		return repeat(t, func(ctx context.Context) (driver.Session, error) {
			return b.Open(ctx, driver.SessionConfig{ID: id, TTL: ttl, Info: info})
		})
	}
	a := begin(ways.addrs(), "a")
	defer func() {
		ways.each((*testenv.TCPProxy).Heal)
		_ = a.Close(within(t))
	}()
	g.everywhere(t, "y", renewals(t, a, get(t, a, try("y", "a-y")))) // it is connected to all servers
	req := &driver.Request{ID: "a-1", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, Info: info, Lease: short}
	reply, err := a.Acquire(within(t), req)
	for end := time.Now().Add(20 * time.Second); (passing(err) || err == nil && reply.Token == 0) &&
		time.Now().Before(end); {
		reply, err = a.Acquire(within(t), req) // one of the two free servers was slow
	}
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	held := driver.Hold{Name: "x", ID: req.ID, Token: reply.Token}
	ask(1)
	ways[1].Hole()
	renewed := time.Now()
	go func() { _, _ = a.Renew(within(t), []driver.Hold{held}) }()
	g.shows(t, 0, "x", "a long lease", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].Left > ttl/2
	}, func() {})
	g.shows(t, 2, "x", "its place", func(r driver.Record) bool { return r.Waiting == 1 }, func() {})
	ways.each((*testenv.TCPProxy).Hole)
	g.shows(t, 1, "x", "another holder", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].ID == "c-1"
	}, func() { ask(1) })
	// On a slow machine the server may have got the place a moment later than another the grant.
	g.shows(t, 2, "x", "no place", func(r driver.Record) bool { return r.Waiting == 0 }, func() {})
	if lasted := time.Since(renewed); lasted > ttl/2 {
		t.Errorf("the place lasted for %v after the renewal; want %v", lasted, short)
	}
	for _, i := range []int{1, 2} {
		h := ask(i)
		if err := other[i].Pass(within(t), h, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	b := begin(g.addrs(), "b")
	defer func() { _ = b.Close(within(t)) }()
	err = b.Adopt(within(t), held, "b-1", info)
	for end := time.Now().Add(20 * time.Second); errors.Is(err, driver.ErrUncertain) && time.Now().Before(end); {
		err = b.Adopt(within(t), held, "b-1", info) // a server was not connected yet
	}
	if !driver.IsOver(err) {
		t.Errorf("Adopt of a grant that had ended: %v; want ErrGone or ErrTaken", err)
	}
}
