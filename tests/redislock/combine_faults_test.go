package redislock_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// panicking is a Conn whose client may panic, as a function may that an application adds to a client.
type panicking struct {
	redislock.Conn
	on atomic.Bool
}

func (c *panicking) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if c.on.Load() {
		panic("a function of the client")
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestCombinedPanic: callers that recover from a panic of their client leave room for others.
func TestCombinedPanic(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn := &panicking{Conn: dialRueidis(t, server.Addr)}
	s := openSession(t, redislock.New(conn, nil), long)
	names := uncontended(t, s, 1)
	conn.on.Store(true)
	ctx := driver.OwnBound(within(t, soon)) // with it an exchange has no goroutine of its own
	for range 10 {
		if !panics(func() { _, _ = s.Acquire(ctx, exclusive(names[0])) }) {
			t.Fatal("the panic did not reach its caller")
		}
	}
	conn.on.Store(false)
	granted(t, s, exclusive(names[0]))
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return did
}
