package redislock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// waitFails is a Conn whose calls are done, and whose WAIT then fails with err, once that is set.
type waitFails struct {
	redislock.Conn
	err atomic.Pointer[error]
}

func (c *waitFails) RunWait(ctx context.Context, calls []redislock.Call, n int, _ time.Duration) (
	[]redislock.Result, int, error) {
	all := c.Conn.RunAll(ctx, calls)
	if err := c.err.Load(); err != nil && strings.Contains(strings.Join(calls[0].Args, " "), "adopt") {
		return all, 0, *err
	}
	return all, n, nil
}

// TestAdoptUnconfirmed: the primary has done an adoption, and the wait for its replicas fails. The caller gives up.
// Then nobody may have the grant.
func TestAdoptUnconfirmed(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	giver := openClient(t, redislock.New(dialRueidis(t, server.Addr), nil))
	for _, text := range []string{"UNBLOCKED force unblock from blocking operation", "NOPERM to run 'wait'"} {
		l, err := giver.Mutex("x").Lock(within(t, soon))
		if err != nil {
			t.Fatal(err)
		}
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		conn := &waitFails{Conn: dialRueidis(t, server.Addr)}
		b := redislock.New(conn, &redislock.Config{WaitReplicas: 1})
		taker := openClient(t, b)
		failure := redislock.ServerError(text, errors.New(text), false)
		conn.err.Store(&failure)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = taker.Adopt(ctx, ticket)
		cancel()
		if err == nil {
			t.Errorf("%s: adopted", text)
		}
		until(t, "nobody has the grant", func() bool {
			rec, err := b.Inspect(within(t, soon), "x")
			return err == nil && len(rec.Holders) == 0
		})
	}
}

// TestCloseAfterAdoptUnconfirmed: the same, and the session is closed. It gives the grant back.
func TestCloseAfterAdoptUnconfirmed(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	giver, b := onServer(t, server, nil, 10*time.Minute)
	r := exclusive("x")
	reply := granted(t, giver, r)
	conn := &waitFails{Conn: dialRueidis(t, server.Addr)}
	failure := redislock.ServerError("NOPERM to run 'wait'", errors.New("NOPERM"), false)
	conn.err.Store(&failure)
	taker := openSession(t, redislock.New(conn, &redislock.Config{WaitReplicas: 1}), 10*time.Minute)
	h := driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
	if err := taker.Adopt(within(t, soon), h, newID(), "{}"); !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Adopt: %v; want ErrUncertain", err)
	}
	if err := taker.Close(within(t, soon)); err != nil {
		t.Error(err)
	}
	unused(t, b, r.Name)
}

// openClient returns a client of b with long leases, and closes both at the end.
func openClient(t *testing.T, b *redislock.Backend) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close(within(t, soon))
		_ = b.Close()
	})
	return c
}
