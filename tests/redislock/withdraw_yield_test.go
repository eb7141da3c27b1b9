package redislock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// yielding is a Conn that keeps back the answer to a Yield, and the second cancellation.
type yielding struct {
	redislock.Conn
	cancellations   atomic.Int32
	yielded, answer chan struct{}
	cancel          func() error // which nobody waits for any more
}

func (c *yielding) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	switch {
	case strings.Contains(s.Text, "-- Takes a request out of the queue") && c.cancellations.Add(1) == 2:
		keys, args = cloned(keys), cloned(args) // they are used again
		c.cancel = func() error {
			_, err := c.Conn.Run(context.WithoutCancel(ctx), s, keys, args)
			return err
		}
		return redislock.Value{}, driver.ErrUncertain
	case strings.Contains(s.Text, "-- Gives a grant to another waiter"):
		v, err := c.Conn.Run(ctx, s, keys, args)
		close(c.yielded)
		<-c.answer
		return v, err
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestWithdrawnWhileYielding: a request is withdrawn from a member before its Yield is answered, and goes
// on. After that answer the member's session cancels its place, without an answer. The request is asked
// for again, and then the cancellation arrives. It does not end the new grant.
func TestWithdrawnWhileYielding(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn := &yielding{Conn: dialRueidis(t, server.Addr), yielded: make(chan struct{}), answer: make(chan struct{})}
	m, s := joined(t, conn)
	_, other := joined(t, dialRueidis(t, server.Addr))
	r, to := exclusive("x"), exclusive("x")
	held, _, err := s.Ask(within(t, soon), r, 0)
	if err != nil || held.Token == 0 {
		t.Fatalf("Ask: %+v, %v", held, err)
	}
	waits, _, err := other.Ask(within(t, soon), to, 0)
	if err != nil || waits.Wake == nil {
		t.Fatalf("Ask: %+v, %v; want a place", waits, err)
	}
	yields := make(chan struct{})
	go func() {
		defer close(yields)
		_, _, _ = s.Yield(within(t, soon), driver.Hold{Name: "x", ID: r.ID, Token: held.Token}, to.ID, 0, 1)
	}()
	<-conn.yielded
	if _, err := s.Withdraw(within(t, soon), "x", r.ID, held.Token); err != nil {
		t.Fatal(err)
	}
	close(conn.answer)
	<-yields
	if conn.cancel == nil {
		t.Fatal("the place was not cancelled")
	}
	if err := other.Pass(within(t, soon), driver.Hold{Name: "x", ID: to.ID, Token: <-waits.Wake}, 0, 0); err != nil {
		t.Fatal(err)
	}
	var reply driver.Reply
	until(t, "granted again", func() bool {
		reply, _, err = s.Ask(within(t, soon), r, 0)
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
