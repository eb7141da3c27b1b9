package redislock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestLateWithdrawal: a withdrawal that arrives again, after the request has another grant, does not end
// that grant. It says which token the grant has.
func TestLateWithdrawal(t *testing.T) {
	t.Parallel()
	m, s := joined(t, dialRueidis(t, testenv.Redis(t).Addr))
	for name, mode := range map[string]driver.Mode{"exclusive": driver.Exclusive, "shared": driver.Shared} {
		r := &driver.Request{ID: newID(), Name: name, Mode: mode, N: 1}
		ask := func() uint64 {
			reply, _, err := s.Ask(within(t, soon), r, 0)
			if err != nil || reply.Token == 0 {
				t.Fatalf("%s: %+v, %v", name, reply, err)
			}
			return reply.Token
		}
		withdraw := func(limit, want uint64) {
			t.Helper()
			if stays, err := s.Withdraw(within(t, soon), name, r.ID, limit); stays != want || err != nil {
				t.Errorf("%s: Withdraw = %d, %v; want %d", name, stays, err, want)
			}
		}
		first := ask()
		withdraw(first, 0)
		second := ask()
		withdraw(first, second)
		withdraw(second-1, second)
		rec, err := m.Inspect(within(t, soon), name)
		if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != second {
			t.Errorf("%s: %+v, %v; want a grant with token %d", name, rec, err, second)
		}
		withdraw(second, 0)
		if rec, err = m.Inspect(within(t, soon), name); err != nil || len(rec.Holders) > 0 {
			t.Errorf("%s: %+v, %v; want no grant", name, rec, err)
		}
	}
}

// muted is a Conn that keeps back the answer to the first request, and the second cancellation.
type muted struct {
	redislock.Conn
	requests, cancellations atomic.Int32
	answer, cancelling      chan struct{}
	cancel                  func() error // which nobody waits for any more
}

func (c *muted) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	switch {
	case strings.Contains(s.Text, "-- Takes a request out of the queue") && c.cancellations.Add(1) == 2:
		keys, args = cloned(keys), cloned(args) // they are used again
		c.cancel = func() error {
			_, err := c.Conn.Run(context.WithoutCancel(ctx), s, keys, args)
			return err
		}
		close(c.cancelling)
		return redislock.Value{}, driver.ErrUncertain
	case strings.Contains(s.Text, "-- Asks once for a name") && c.requests.Add(1) == 1:
		v, err := c.Conn.Run(context.WithoutCancel(ctx), s, keys, args)
		<-c.answer
		return v, err
	}
	return c.Conn.Run(ctx, s, keys, args)
}

func cloned(list []string) (all []string) {
	for _, s := range list {
		all = append(all, strings.Clone(s))
	}
	return all
}

// TestAskedAgainLongBefore: a member's session has cancelled a request by itself, without an answer. The
// request is asked for again. Then the cancellation arrives. It does not end what the caller was told.
func TestAskedAgainLongBefore(t *testing.T) {
	t.Parallel()
	conn := &muted{Conn: dialRueidis(t, testenv.Redis(t).Addr), answer: make(chan struct{}),
		cancelling: make(chan struct{})}
	m, s := joined(t, conn)
	r := exclusive("x")
	r.Wait = false
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	propose := uint64(time.Now().Add(time.Second).UnixMicro())
	if _, _, err := s.Ask(ctx, r, propose); !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("Ask: %v; want ErrUncertain", err)
	}
	if err := s.Cancel(within(t, soon), "y", r.ID); err != nil { // it ends nothing of x
		t.Fatal(err)
	}
	close(conn.answer)
	<-conn.cancelling
	var reply driver.Reply
	until(t, "granted again", func() (ok bool) {
		var err error
		reply, _, err = s.Ask(within(t, soon), r, propose)
		return err == nil && reply.Token != 0
	})
	if err := conn.cancel(); err != nil {
		t.Fatal(err)
	}
	rec, err := m.Inspect(within(t, soon), "x")
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != reply.Token {
		t.Errorf("the caller heard token %d; on record is %+v, %v", reply.Token, rec.Holders, err)
	}
}
