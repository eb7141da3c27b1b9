package redislock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// joined is a member's session at a new server that votes.
func joined(t *testing.T, conn redislock.Conn) (*redislock.Member, *redislock.MemberSession) {
	t.Helper()
	m, err := redislock.NewMember(conn, "hfq:", time.Minute, "a b c", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Birth(within(t, soon), true); err != nil {
		t.Fatal(err)
	}
	s, err := m.Join(within(t, soon), driver.SessionConfig{ID: newID(), TTL: long}, redislock.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return m, s
}

// crossing is a Conn that keeps back the answer to the first request, and the second cancellation.
type crossing struct {
	redislock.Conn
	requests, cancellations  atomic.Int32
	granted, answer          chan struct{}
	cancelling, cancel, done chan struct{}
}

func (c *crossing) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	switch {
	case strings.Contains(s.Text, "-- Takes a request out of the queue"):
		if c.cancellations.Add(1) == 2 {
			close(c.cancelling)
			<-c.cancel
			defer close(c.done)
		}
		return c.Conn.Run(ctx, s, keys, args)
	case strings.Contains(s.Text, "-- Asks once for a name") && c.requests.Add(1) == 1:
		<-c.granted // the cancellation overtakes it
		v, err := c.Conn.Run(ctx, s, keys, args)
		<-c.answer
		return v, err
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestAskedAgain: a quorum cancels a request at a member, and asks for it again before the member's session
// knows the first answer. The session's own cancellation of the first does not end the later grant.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn := &crossing{Conn: dialRueidis(t, server.Addr), granted: make(chan struct{}), answer: make(chan struct{}),
		cancelling: make(chan struct{}), cancel: make(chan struct{}), done: make(chan struct{})}
	m, s := joined(t, conn)
	r := exclusive("asked again")
	r.Wait = false
	first := make(chan error, 1)
	go func() {
		_, _, err := s.Ask(driver.OwnBound(within(t, long)), r, 0)
		first <- err
	}()
	until(t, "the first is under way", func() bool { return conn.requests.Load() == 1 })
	if err := s.Cancel(within(t, soon), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	close(conn.granted)
	close(conn.answer)
	<-conn.cancelling
	var reply driver.Reply
	var err error
	until(t, "the second is granted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		again := *r
		reply, _, err = s.Ask(ctx, &again, 0)
		if err != nil && conn.cancellations.Load() == 2 {
			select {
			case <-conn.cancel:
			default:
				close(conn.cancel)
			}
		}
		return err == nil
	})
	select {
	case <-conn.cancel:
	default:
		close(conn.cancel)
	}
	<-conn.done
	if err := <-first; !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("the first: %v; want ErrUncertain", err)
	}
	rec, err := m.Inspect(within(t, soon), r.Name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != reply.Token {
		t.Errorf("the caller heard token %d; on record is %+v, %v", reply.Token, rec.Holders, err)
	}
}

// latePush is a Conn that keeps back pushes, and the second cancellation.
type latePush struct {
	redislock.Conn
	cancellations            atomic.Int32
	pushed, deliver          chan struct{}
	cancelling, cancel, done chan struct{}
}

func (c *latePush) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return c.Conn.Subscribe(ctx, channel, func(payload string) {
		close(c.pushed)
		<-c.deliver
		message(payload)
	}, again)
}

func (c *latePush) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if strings.Contains(s.Text, "-- Takes a request out of the queue") && c.cancellations.Add(1) == 2 {
		close(c.cancelling)
		defer close(c.done)
		<-c.cancel
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestAskedAgainBeforeAPush: a place is cancelled, and the push about it comes later. The session then
// cancels the request once more, but does not end a grant that the same request has got meanwhile.
func TestAskedAgainBeforeAPush(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	m, other := joined(t, dialRueidis(t, server.Addr))
	conn := &latePush{Conn: dialRueidis(t, server.Addr), pushed: make(chan struct{}), deliver: make(chan struct{}),
		cancelling: make(chan struct{}), cancel: make(chan struct{}), done: make(chan struct{})}
	_, s := joined(t, conn)
	first := exclusive("x")
	held, _, err := other.Ask(within(t, soon), first, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := exclusive("x")
	if reply, _, err := s.Ask(within(t, soon), r, 0); err != nil || reply.Wake == nil {
		t.Fatalf("Ask: %+v, %v; want a place", reply, err)
	}
	if err := other.Pass(within(t, soon), driver.Hold{Name: "x", ID: first.ID, Token: held.Token}, 0, 0); err != nil {
		t.Fatal(err)
	}
	<-conn.pushed
	if err := s.Cancel(within(t, soon), "x", r.ID); err != nil {
		t.Fatal(err)
	}
	close(conn.deliver)
	<-conn.cancelling
	var reply driver.Reply
	overtakes := sync.OnceFunc(func() { close(conn.cancel) })
	until(t, "the second is granted", func() bool {
		reply, _, err = s.Ask(within(t, soon), r, 0)
		overtakes()
		return err == nil
	})
	<-conn.done
	rec, err := m.Inspect(within(t, soon), "x")
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != reply.Token {
		t.Errorf("the caller heard token %d; on record is %+v, %v", reply.Token, rec.Holders, err)
	}
}
