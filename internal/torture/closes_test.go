//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// TestClosesLeaveNothing: a Close that crosses calls of Lock, on free names and on one that is
// held, leaves no grant and no place in line, on any store. The TTL is an hour: what is left
// would be found.
func TestClosesLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	for name, start := range map[string]func(*testing.T) string{
		"redis":     func(t *testing.T) string { return testenv.Redis(t).URL() },
		"sqlite":    func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") },
		"zookeeper": func(t *testing.T) string { return testenv.ZooKeeper(t, "maxSessionTimeout=3600000").URL() },
		"mysql": func(t *testing.T) string {
			url := "mysql:" + testenv.MariaDB(t).DSN("root", "")
			initialise(t, url, mysql.Dialect())
			return url
		},
		"postgres": func(t *testing.T) string {
			url := testenv.Postgres(t).DSN("postgres")
			initialise(t, url, postgres.Dialect())
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closes(t, start(t), testenv.Rounds(50, 10_000))
		})
	}
}

// closes closes so many clients while they lock.
func closes(t *testing.T, url string, rounds int) {
	b, err := open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	cfg := &holdfast.Config{TTL: time.Hour}
	other, err := holdfast.New(t.Context(), b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	held, err := other.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		c, err := holdfast.New(t.Context(), b, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for _, lock := range []string{"held", "free", "free", fmt.Sprint("own/", round%10)} {
			calls.Go(func() {
				for {
					l, err := c.Mutex(lock).Lock(t.Context())
					if err != nil {
						if !errors.Is(err, holdfast.ErrClosed) {
							t.Errorf("round %d: Lock beside Close: %v", round, err)
						}
						return
					}
					if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrReleased) {
						t.Errorf("round %d: Release beside Close: %v", round, err)
					}
				}
			})
		}
		time.Sleep(rand.N(3 * time.Millisecond))
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		calls.Wait()
	}
	list, err := b.List(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Name == "held" && len(r.Waiters) == 0 || len(r.Holders)+len(r.Waiters) == 0 {
			continue
		}
		t.Errorf("left after %d closes: %+v", rounds, r)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}
