package redislock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// noRenewals is a Conn that loses renewals on the way to the server.
type noRenewals struct {
	redislock.Conn
	lose atomic.Bool
}

func (c *noRenewals) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	if !c.lose.Load() {
		return c.Conn.RunAll(ctx, calls)
	}
	all := make([]redislock.Result, len(calls))
	for i := range all {
		all[i].Err = driver.ErrUncertain
	}
	return all
}

// TestReleaseAfterLostRenewals: renewals of a grant did not reach the server, and it expires. Its release
// says so, even if nobody has taken the lock since.
func TestReleaseAfterLostRenewals(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	conn := &noRenewals{Conn: dialRueidis(t, testenv.Redis(t).Addr)}
	s := openSession(t, redislock.New(conn, nil), ttl)
	for range 3 { // the name is often free
		err := s.Release(within(t, soon), granted(t, s, exclusive("x")), 0)
		if err != nil && !errors.Is(err, driver.ErrGone) {
			t.Fatal(err)
		}
	}
	h := granted(t, s, exclusive("x"))
	conn.lose.Store(true)
	for end := time.Now().Add(ttl + ttl/10); time.Now().Before(end); time.Sleep(ttl / 20) {
		if _, err := s.Renew(within(t, soon), []driver.Hold{h}); err == nil {
			t.Error("a renewal without an answer succeeded")
		}
	}
	if err := s.Release(within(t, soon), h, 0); !errors.Is(err, driver.ErrGone) {
		t.Errorf("Release of a grant that had ended: %v; want ErrGone", err)
	}
}

// TestReleaseOfAnotherToken: a release must name the token of the grant, also on the fast path.
func TestReleaseOfAnotherToken(t *testing.T) {
	t.Parallel()
	s := openSession(t, redislock.New(dialRueidis(t, testenv.Redis(t).Addr), nil), time.Minute)
	for i := range 4 { // after the first rounds the name is often free
		h := granted(t, s, exclusive("x"))
		other := h
		other.Token++
		if err := s.Release(within(t, soon), other, 0); !driver.IsOver(err) {
			t.Errorf("round %d: Release of another token: %v; want ErrGone or ErrTaken", i, err)
		}
		if err := s.Release(within(t, soon), h, 0); err != nil {
			t.Errorf("round %d: Release of the grant: %v", i, err)
		}
	}
}
