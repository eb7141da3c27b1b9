package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

// TestCloseTellsTheTruth: Close of a client that is cut off says that all it held has run out only when that is so.
func TestCloseTellsTheTruth(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, long)
	proxy := testenv.Proxy(t, server.Addr)
	client := func(addr string) *holdfast.Client {
		b, err := zklock.New(zklock.Config{Servers: []string{addr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = c.Close(ctx)
		})
		return c
	}
	a, b := client(proxy.Addr), client(server.Addr)
	if _, err := a.Mutex("close/x").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Hole()
	start := time.Now()
	err := a.Close(context.Background())
	t.Logf("Close after %v: %v", time.Since(start), err)
	if err == nil || !strings.Contains(err.Error(), "all that was held has run out") {
		return
	}
	for {
		l, err := b.Mutex("close/x").TryLock(t.Context())
		if err == nil {
			t.Logf("free %v after Close began", time.Since(start))
			_ = l.Release()
			return
		}
		if !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		t.Errorf("%v after Close began: %v", time.Since(start), err)
		time.Sleep(500 * time.Millisecond)
	}
}

// slowReleases is a store that answers each release after a while, as over a slow network.
type slowReleases struct{ driver.Backend }

func (b slowReleases) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return slowSession{s}, err
}

type slowSession struct{ driver.Session }

func (s slowSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	select {
	case <-time.After(150 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Session.Release(ctx, h, keep)
}

// TestCloseOfManyTellsTheTruth: a client with many locks, at a store that answers, leaves none when Close is back, or none that
// it says has run out.
func TestCloseOfManyTellsTheTruth(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, long)
	client := func(wrap func(driver.Backend) driver.Backend) *holdfast.Client {
		b, err := zklock.New(zklock.Config{Servers: []string{server.Addr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		c, err := holdfast.New(t.Context(), wrap(b), &holdfast.Config{TTL: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = c.Close(ctx)
		})
		return c
	}
	a := client(func(b driver.Backend) driver.Backend { return slowReleases{b} })
	b := client(func(b driver.Backend) driver.Backend { return b })
	const n = 1000
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := a.Mutex(fmt.Sprint("many/", i)).Lock(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	start := time.Now()
	err := a.Close(context.Background())
	t.Logf("Close after %v: %v", time.Since(start), err)
	for {
		held := 0
		for r, err := range b.Locks(t.Context(), "many/") {
			if err != nil {
				t.Fatal(err)
			}
			held += len(r.Holders)
		}
		if held == 0 {
			t.Logf("all are free %v after Close began", time.Since(start))
			return
		}
		t.Errorf("%v after Close began %d of %d are held", time.Since(start), held, n)
		time.Sleep(time.Second)
	}
}
