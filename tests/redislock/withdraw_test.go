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

// lateCancel is a Conn that leaves the second cancellation without an answer. arrive sends it.
type lateCancel struct {
	redislock.Conn
	cancellations atomic.Int32
	left          chan struct{} // closed when it was to be sent
	arrive        func() error
}

func newLateCancel(conn redislock.Conn) *lateCancel {
	return &lateCancel{Conn: conn, left: make(chan struct{})}
}

func (c *lateCancel) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if !strings.Contains(s.Text, "-- Takes a request out of the queue") || c.cancellations.Add(1) != 2 {
		return c.Conn.Run(ctx, s, keys, args)
	}
	keys, args = cloned(keys), cloned(args) // they are used again
	c.arrive = func() error {
		_, err := c.Conn.Run(context.WithoutCancel(ctx), s, keys, args)
		return err
	}
	close(c.left)
	return redislock.Value{}, driver.ErrUncertain
}

// waitFor returns when the second cancellation was to be sent.
func (c *lateCancel) waitFor(t *testing.T) {
	t.Helper()
	select {
	case <-c.left:
	case <-within(t, soon).Done():
		t.Fatal("the session has not cancelled the request by itself")
	}
}

func cloned(list []string) (all []string) {
	for _, s := range list {
		all = append(all, strings.Clone(s))
	}
	return all
}

// lateAnswer is a Conn that keeps back the answer to the first script with that text.
type lateAnswer struct {
	redislock.Conn
	text         string
	n            atomic.Int32
	done, answer chan struct{}
}

func newLateAnswer(conn redislock.Conn, text string) *lateAnswer {
	return &lateAnswer{Conn: conn, text: text, done: make(chan struct{}), answer: make(chan struct{})}
}

func (c *lateAnswer) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if !strings.Contains(s.Text, c.text) || c.n.Add(1) != 1 {
		return c.Conn.Run(ctx, s, keys, args)
	}
	v, err := c.Conn.Run(context.WithoutCancel(ctx), s, keys, args)
	close(c.done)
	<-c.answer
	return v, err
}

// cancelledByItself is a request that the member's session cancels by itself, without an answer, when the caller
// has given it up.
func cancelledByItself(t *testing.T, conn *lateCancel, asked *lateAnswer, s *redislock.MemberSession, r *driver.Request,
	propose uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked.done
		cancel() // the caller gives up
	}()
	if _, _, err := s.Ask(ctx, r, propose); !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("Ask: %v; want ErrUncertain", err)
	}
	if err := s.Cancel(within(t, soon), "y", r.ID); err != nil { // it ends nothing of x
		t.Fatal(err)
	}
	close(asked.answer)
	conn.waitFor(t)
}

// TestAskedAgainLongBefore: a member's session has cancelled a request by itself, without an answer. The
// request is asked for again. Then the cancellation arrives. It does not end what the caller was told.
func TestAskedAgainLongBefore(t *testing.T) {
	t.Parallel()
	asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), "-- Asks once for a name")
	conn := newLateCancel(asked)
	m, s := joined(t, conn)
	r := exclusive("x")
	r.Wait = false
	propose := uint64(time.Now().Add(time.Second).UnixMicro())
	cancelledByItself(t, conn, asked, s, r, propose)
	grantedBeside(t, conn, m, s, r, propose)
}

// unsent is a Conn that cannot send scripts with that text.
type unsent struct {
	redislock.Conn
	text string
}

func (c unsent) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if strings.Contains(s.Text, c.text) {
		return redislock.Value{}, driver.ErrUnavailable
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestAskedAgainWithoutARaise: the same. The server grants the request again, and the raise of that cannot be sent.
// The caller must not hear that nothing was done.
func TestAskedAgainWithoutARaise(t *testing.T) {
	t.Parallel()
	asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), "-- Asks once for a name")
	conn := newLateCancel(unsent{asked, "-- Gives a grant the token that the quorum agreed on"})
	m, s := joined(t, conn)
	r := exclusive("x")
	r.Wait = false
	propose := uint64(time.Now().Add(time.Second).UnixMicro())
	cancelledByItself(t, conn, asked, s, r, propose)
	until(t, "the caller hears that the outcome is unknown", func() bool {
		_, _, err := s.Ask(within(t, soon), r, propose)
		return errors.Is(err, driver.ErrUncertain)
	})
	if rec, err := m.Inspect(within(t, soon), r.Name); err != nil || len(rec.Holders) != 1 {
		t.Errorf("%+v, %v; want a grant", rec, err)
	}
}

// TestCancelledWithoutACancellation: a request is cancelled before its answer comes, and the server has granted it. No
// cancellation can be sent. The caller must not hear that nothing was done.
func TestCancelledWithoutACancellation(t *testing.T) {
	t.Parallel()
	asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), "-- Asks once for a name")
	_, s := joined(t, unsent{asked, "-- Takes a request out of the queue"})
	r := exclusive("x")
	r.Wait = false
	answers := make(chan error, 1)
	go func() {
		_, _, err := s.Ask(within(t, soon), r, 0)
		answers <- err
	}()
	<-asked.done
	if err := s.Cancel(within(t, soon), r.Name, r.ID); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	close(asked.answer)
	if err := <-answers; !errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Ask: %v; want ErrUncertain", err)
	}
}

// grantedBeside asks for r again, and lets the cancellation arrive. It does not end the grant.
func grantedBeside(t *testing.T, conn *lateCancel, m *redislock.Member, s *redislock.MemberSession, r *driver.Request,
	propose uint64) {
	t.Helper()
	var reply driver.Reply
	until(t, "granted again", func() (ok bool) {
		var err error
		reply, _, err = s.Ask(within(t, soon), r, propose)
		return err == nil && reply.Token != 0
	})
	if err := conn.arrive(); err != nil {
		t.Fatal(err)
	}
	rec, err := m.Inspect(within(t, soon), r.Name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != reply.Token {
		t.Errorf("the caller heard token %d; on record is %+v, %v", reply.Token, rec.Holders, err)
	}
}
