package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestOnlyOnePastAMissedRelease: a client has ended while one server was away, and now another server is. Nobody has
// run the job, so OnlyOne waits for the end of the grant that the client has left behind.
func TestOnlyOnePastAMissedRelease(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	granted := g.leaves(t, ways, 0, "a", ttl)
	ways[2].Refuse()
	c := connect(t, g.backend(ways.addrs()), &holdfast.Config{TTL: 20 * time.Second})
	ran, err := c.OnlyOne(within(t), "x", time.Hour, func(context.Context) error { return nil })
	if !ran || err != nil {
		t.Errorf("OnlyOne %v after the grant of another, whose TTL is %v: %v, %v", time.Since(granted), ttl, ran, err)
	}
	ran, err = c.OnlyOne(within(t), "x", time.Hour, func(context.Context) error { return nil })
	if ran || err != nil {
		t.Errorf("the second one: %v, %v", ran, err)
	}
}

// TestOnlyOnePastAnUnfinishedTry: a client has ended while two servers were away, and the third had granted its
// request. Nobody has run the job. So that server does not keep the name longer than the lease, although the request
// was one with a minimum hold.
func TestOnlyOnePastAnUnfinishedTry(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	b := g.backend(ways.addrs())
	s := open(t, b, "a", ttl)
	ways[1].Hole()
	ways[2].Hole()
	ctx, end := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() {
		r := try("x", "a-1")
		r.MinHold = holdfast.TickHold(time.Hour)
		_, err := s.Acquire(ctx, r)
		done <- err
	}()
	g.shows(t, 0, "x", "the grant", func(r driver.Record) bool { return len(r.Holders) == 1 }, func() {})
	granted := time.Now()
	ways[0].Refuse()
	end()
	if err := <-done; err == nil {
		t.Error("granted by one server of three")
	}
	_ = s.Close(within(t))
	_ = b.Close()

	others := g.proxies()
	others[2].Refuse()
	c := connect(t, g.backend(others.addrs()), &holdfast.Config{TTL: 20 * time.Second})
	ran, err := c.OnlyOne(within(t), "x", time.Hour, func(context.Context) error { return nil })
	if !ran || err != nil {
		t.Errorf("OnlyOne %v after the grant of another, whose TTL is %v: %v, %v", time.Since(granted), ttl, ran, err)
	}
}

// TestOnlyOneBesideItsLostTry: a majority grants a try, and its answers get lost. The next try meets that grant, which
// nobody uses. It is no run.
func TestOnlyOneBesideItsLostTry(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	c := connect(t, g.backend(ways.addrs()), &holdfast.Config{TTL: 15 * time.Second})
	g.leaves(t, ways, 0, "a", ttl) // so that OnlyOne tries again
	g.leaves(t, ways, 1, "b", ttl)
	ran, ended := make(chan bool, 1), make(chan error, 1)
	go func() {
		did, err := c.OnlyOne(within(t), "x", time.Hour, func(context.Context) error { return nil })
		ran <- did
		ended <- err
	}()
	ways.each(func(p *testenv.TCPProxy) { p.Delay(250 * time.Millisecond) })
	for _, i := range []int{1, 2} {
		g.shows(t, i, "x", "a try", func(r driver.Record) bool {
			return len(r.Holders) == 1 && r.Holders[0].ID != "a-1" && r.Holders[0].ID != "b-1"
		}, func() {})
	}
	ways.each((*testenv.TCPProxy).Refuse)
	time.Sleep(1200 * time.Millisecond)
	ways.each((*testenv.TCPProxy).Heal)
	if did, err := <-ran, <-ended; !did && err == nil {
		t.Error("OnlyOne says that another has run the job")
	}
}
