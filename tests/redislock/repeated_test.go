package redislock_test

import (
	"context"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// firstLate is a Conn that keeps back the answer to its first script after arm.
type firstLate struct {
	redislock.Conn
	armed    chan struct{} // has a value: the next answer is kept back
	answered chan struct{} // closed when the server has given it
	pass     chan struct{} // closed to pass it on
}

func (c *firstLate) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	select {
	case <-c.armed:
		v, err := c.Conn.Run(ctx, s, keys, args)
		close(c.answered)
		<-c.pass
		return v, err
	default:
		return c.Conn.Run(ctx, s, keys, args)
	}
}

// TestRefusedLate: a request that does not wait is repeated before it is answered, as a quorum does,
// and granted. Then the first answer comes, which is a refusal. The session still gives the grant
// back when it is closed.
func TestRefusedLate(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL()
	other, b := session(t, url, long)
	c := &firstLate{Conn: dialURL(t, url), armed: make(chan struct{}, 1), answered: make(chan struct{}),
		pass: make(chan struct{})}
	s := openSession(t, redislock.New(c, nil), long)
	const name = "refused late"
	held := granted(t, other, exclusive(name))
	r := exclusive(name)
	r.Wait = false
	c.armed <- struct{}{}
	first := make(chan error, 1)
	go func() {
		reply, err := s.Acquire(within(t, soon), r)
		if reply.Token != 0 {
			t.Errorf("the first exchange was granted: %+v", reply)
		}
		first <- err
	}()
	<-c.answered
	if err := other.Release(within(t, soon), held, 0); err != nil {
		t.Fatal(err)
	}
	granted(t, s, r)
	close(c.pass)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	if rec, err := b.Inspect(within(t, soon), name); err != nil || len(rec.Holders) > 0 {
		t.Errorf("after Close: %+v, %v; want no holder", rec, err)
	}
}
