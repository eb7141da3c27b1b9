package quorum_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// TestUnreachable: a quorum whose servers cannot be reached reports that at once.
func TestUnreachable(t *testing.T) {
	b := quorum.New(at([]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}), nil)
	defer func() { _ = b.Close() }()
	if _, err := b.Open(within(t), driver.SessionConfig{ID: "a", TTL: time.Second}); !errors.Is(err,
		driver.ErrUnavailable) {
		t.Errorf("Open: %v; want ErrUnavailable", err)
	}
}

// TestFullStrength: soon after a majority has granted a lock, all servers have it, even those that
// were away. With redsync they never do.
func TestFullStrength(t *testing.T) {
	t.Parallel()
	const quarantine = 6 * time.Second // the lease is as long
	g := start(t, 5, quarantine)
	c := connect(t, g.backend(g.addrs()), &holdfast.Config{TTL: quarantine})
	l, err := c.Mutex("x").Lock(within(t))
	if err != nil {
		t.Fatal(err)
	}
	everywhere := func() {
		t.Helper()
		for i := range g.servers {
			m := member(t, g, i)
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				r, err := m.Inspect(within(t), "x")
				if err == nil && len(r.Holders) == 1 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("server %d: %+v, %v", i+1, r, err)
				}
			}
		}
	}
	everywhere()
	g.servers[0].Restart(false)
	g.servers[3].Do("FLUSHALL")
	everywhere()
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
