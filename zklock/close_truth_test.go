package zklock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
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
