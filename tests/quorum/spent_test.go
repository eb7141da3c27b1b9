package quorum_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestSpentRequest: no server can be asked for a request, and the session gives it back. It cancels
// it at the servers once it reaches them again. By then the lock may be asked for again and be
// held: under the same ID the holder would lose it to the next waiter.
func TestSpentRequest(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	g := start(t, 3, 20*time.Second)
	ways := g.proxies()
	b := g.backend(ways.addrs())
	s := open(t, b, "a", ttl)
	renewed := make(chan struct{}, 1)
	c := connect(t, b, &holdfast.Config{TTL: ttl, Observer: &holdfast.Observer{
		Renewed: func(n int, _ time.Duration, err error) {
			if n > 0 && err == nil {
				select {
				case renewed <- struct{}{}:
				default:
				}
			}
		},
	}})
	t.Cleanup(func() {
		if err := c.Close(within(t)); err != nil {
			t.Error(err)
		}
	})
	ways.each((*testenv.TCPProxy).Refuse)
	unavailable := func(r *driver.Request) error {
		for end := time.Now().Add(30 * time.Second); ; {
			if _, err := s.Acquire(within(t), r); errors.Is(err, driver.ErrUnavailable) &&
				!errors.Is(err, driver.ErrUncertain) || time.Now().After(end) {
				return err
			}
		}
	}
	if err := unavailable(try("y", "a-1")); !errors.Is(err, driver.ErrSpent) {
		t.Errorf("%v; want ErrSpent, too", err)
	}
	failing := make(chan struct{})
	go func() {
		defer close(failing)
		_ = unavailable(try("y", "a-2")) // so has the client's own by now
		time.Sleep(200 * time.Millisecond)
		ways.each((*testenv.TCPProxy).Heal)
	}()
	l, err := c.Mutex("x").Lock(within(t))
	for passing(err) { // on a slow machine the outage is longer than it waits
		l, err = c.Mutex("x").Lock(within(t))
	}
	<-failing
	if err != nil {
		t.Fatal(err)
	}
	select { // by its first renewal the servers have the cancellations
	case <-l.Done():
		t.Errorf("the lease ended: %v", l.Err())
	case <-renewed:
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
