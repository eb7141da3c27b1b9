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

// detaining keeps back the answer of the first exchange that has at least so many names.
type detaining struct {
	redislock.Conn
	names    int
	detained atomic.Int32 // how many names that exchange has; 0: there was none yet
	end      chan struct{}
}

func (c *detaining) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	v, err := c.Conn.Run(ctx, s, keys, args)
	if len(keys) >= c.names && c.detained.CompareAndSwap(0, int32(len(keys))) {
		<-c.end
	}
	return v, err
}

// TestCombinedSilent: a shared exchange without an answer delays no call that is not part of it.
func TestCombinedSilent(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 64, 25
	server := testenv.Redis(t)
	conn := &detaining{Conn: dialRueidis(t, server.Addr), names: 8, end: make(chan struct{})}
	s := openSession(t, redislock.New(conn, nil), long)
	names := uncontended(t, s, goroutines+1)
	last, names := names[goroutines], names[:goroutines]
	var running atomic.Int32
	running.Store(goroutines)
	var group sync.WaitGroup
	for _, name := range names {
		group.Go(func() {
			defer running.Add(-1)
			for range rounds {
				r := exclusive(name)
				reply, err := s.Acquire(within(t, long), r)
				if err == nil {
					err = s.Release(within(t, long), driver.Hold{Name: name, ID: r.ID, Token: reply.Token}, 0)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(soon); ; <-tick.C {
		n := conn.detained.Load()
		if n > 0 && running.Load() == n {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%d goroutines are not done; want %d, whose exchange has no answer", running.Load(), n)
			break
		}
	}
	// No other exchange is under way, and none ends soon. A call alone must not wait for that.
	if reply, err := s.Acquire(within(t, soon), exclusive(last)); err != nil || reply.Token == 0 {
		t.Errorf("a call beside an exchange without an answer: %+v, %v", reply, err)
	}
	close(conn.end)
	group.Wait()
}

// TestCombinedRefused: a server refuses a name in the middle of a shared exchange. What the callers hear
// is on record for each name.
func TestCombinedRefused(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 64, 10
	server := testenv.Redis(t)
	b := newEdited(dialRueidis(t, server.Addr), nil, func(name, text string) string {
		if name == "take" {
			text = testenv.RefusesSets + text
		}
		return text
	})
	s := openSession(t, b, long)
	names := uncontended(t, s, goroutines)
	for range rounds {
		holds, errs := make([]driver.Hold, goroutines), make([]error, goroutines)
		each(names, func(i int, name string) {
			r := exclusive(name)
			reply, err := s.Acquire(within(t, soon), r)
			holds[i], errs[i] = driver.Hold{Name: name, ID: r.ID, Token: reply.Token}, err
		})
		for i, h := range holds {
			rec, err := b.Inspect(within(t, soon), h.Name)
			if err != nil || len(rec.Holders) != min(int(h.Token), 1) || h.Token > 0 && rec.Holders[0].ID != h.ID {
				t.Fatalf("Acquire: token %d, %v; on record is %+v, %v", h.Token, errs[i], rec, err)
			}
		}
		each(names, func(i int, _ string) {
			if holds[i].Token == 0 {
				return
			}
			if err := s.Release(within(t, soon), holds[i], 0); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
	if n := server.Do("GET refused"); n == "$-1" {
		t.Error("no exchange was shared")
	}
}

// each calls f for all names at once.
func each(names []string, f func(i int, name string)) {
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { f(i, name) })
	}
	group.Wait()
}

// hasty ends shared exchanges early once it is on, as the time limits of a client may.
type hasty struct {
	redislock.Conn
	on atomic.Bool
}

func (c *hasty) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if !c.on.Load() || !strings.Contains(s.Text, "-- Fast path of acquire.lua for one or a few") {
		return c.Conn.Run(ctx, s, keys, args)
	}
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	return c.Conn.Run(ctx, s, keys, args)
}

// TestCombinedTimeLimit: the error of a shared exchange that reaches a time limit does not look like the
// end of its callers' contexts, which have none.
func TestCombinedTimeLimit(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn := &hasty{Conn: dialRueidis(t, server.Addr)}
	s := openSession(t, redislock.New(conn, nil), long)
	names := uncontended(t, s, 64)
	conn.on.Store(true)
	server.Pause()
	defer server.Continue()
	each(names, func(_ int, name string) {
		_, err := s.Acquire(context.Background(), exclusive(name))
		if !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want ErrUncertain or ErrUnavailable, and no end of a context", name, err)
		}
	})
}

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
