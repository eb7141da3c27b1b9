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

// What the texts of some scripts contain.
const (
	asks    = "-- Asks once for a name"
	cancels = "-- Takes a request out of the queue"
	raises  = "-- Gives a grant the token that the quorum agreed on"
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
	if !strings.Contains(s.Text, cancels) || c.cancellations.Add(1) != 2 {
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
	asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), asks)
	conn := newLateCancel(asked)
	m, s := joined(t, conn)
	r := exclusive("x")
	r.Wait = false
	propose := uint64(time.Now().Add(time.Second).UnixMicro())
	cancelledByItself(t, conn, asked, s, r, propose)
	grantedBeside(t, conn, m, s, r, propose)
}

// failing is a Conn that answers scripts with that text by an error, and does not send them, once err is set.
type failing struct {
	redislock.Conn
	text string
	err  atomic.Pointer[error]
}

func newFailing(conn redislock.Conn, text string, err error) *failing {
	c := &failing{Conn: conn, text: text}
	if err != nil {
		c.err.Store(&err)
	}
	return c
}

func (c *failing) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if err := c.err.Load(); err != nil && strings.Contains(s.Text, c.text) {
		return redislock.Value{}, *err
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestAskedAgainWithoutARaise: the same. The server grants the request again, and the raise of that cannot be sent.
// The caller must not hear that nothing was done.
func TestAskedAgainWithoutARaise(t *testing.T) {
	t.Parallel()
	asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), asks)
	conn := newLateCancel(newFailing(asked, raises, driver.ErrUnavailable))
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
// cancellation can be sent, or the server refuses each. The caller must not hear that nothing was done.
func TestCancelledWithoutACancellation(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "MISCONF", "READONLY", "NOREPLICAS", "LOADING", "MOVED 1 a:1"} {
		failure := driver.ErrUnavailable
		if text != "" {
			failure = redislock.ServerError(text, errors.New(text), false)
		}
		asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), asks)
		_, s := joined(t, newFailing(asked, cancels, failure))
		r := exclusive("x")
		r.Wait = false
		answers := make(chan error, 1)
		go func() {
			_, _, err := s.Ask(within(t, soon), r, 0)
			answers <- err
		}()
		<-asked.done
		if err := s.Cancel(within(t, soon), r.Name, r.ID); err == nil {
			t.Error("the cancellation was successful")
		}
		close(asked.answer)
		isUncertain(t, failure, <-answers)
	}
}

// isUncertain checks that a caller hears only that the outcome is unknown.
func isUncertain(t *testing.T, what any, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable) || driver.IsFinal(err) {
		t.Errorf("%v: %v; want ErrUncertain", what, err)
	}
}

// TestCancelledDuringARaise: a request is asked for again, and its grant gets a larger token. It is cancelled before
// the answer to that comes, and the cancellation cannot be sent. The caller must not hear that nothing was done.
func TestCancelledDuringARaise(t *testing.T) {
	t.Parallel()
	asked := newLateAnswer(dialRueidis(t, testenv.Redis(t).Addr), asks)
	raised := newLateAnswer(asked, raises)
	away := newFailing(raised, cancels, nil)
	conn := newLateCancel(away)
	m, s := joined(t, conn)
	r := exclusive("x")
	r.Wait = false
	propose := uint64(time.Now().Add(time.Second).UnixMicro())
	cancelledByItself(t, conn, asked, s, r, propose)
	answers := make(chan error, 1)
	go func() {
		for { // the session refuses it while its own cancellation is under way
			_, _, err := s.Ask(within(t, soon), r, propose)
			select {
			case <-raised.done:
				answers <- err
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	until(t, "the grant is raised", func() bool { return raised.n.Load() > 0 })
	<-raised.done
	failure := driver.ErrUnavailable
	away.err.Store(&failure)
	_ = s.Cancel(within(t, soon), r.Name, r.ID)
	close(raised.answer)
	isUncertain(t, "raise", <-answers)
	if rec, err := m.Inspect(within(t, soon), r.Name); err != nil || len(rec.Holders) != 1 {
		t.Errorf("%+v, %v; want a grant", rec, err)
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
