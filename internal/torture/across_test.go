//go:build linux

package torture

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// TestLockAllAcrossStores: transfers between accounts whose locks are kept by six stores
// lose no money, and none waits for ever, whichever two come in whichever order.
func TestLockAllAcrossStores(t *testing.T) {
	const crewSize, transfers, accounts = 6, 60, 7
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	backends := []driver.Backend{memlock.New()}
	maria, pg := "mysql:"+testenv.MariaDB(t).DSN("root", ""), testenv.Postgres(t).DSN("postgres")
	initialise(t, maria, mysql.Dialect())
	initialise(t, pg, postgres.Dialect())
	for _, url := range []string{testenv.Redis(t).URL(), testenv.ZooKeeper(t).URL(), "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), maria, pg} {
		b, err := open(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		backends = append(backends, b)
	}
	var balance [accounts]atomic.Int64 // read and written in two steps, on purpose
	var crew sync.WaitGroup
	for w := range crewSize {
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		clients := make([]*holdfast.Client, len(backends))
		for i, b := range backends {
			c, err := holdfast.New(ctx, b, &holdfast.Config{TTL: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			clients[i] = c
		}
		crew.Go(func() {
			for range transfers {
				from := rng.IntN(accounts)
				to := (from + 1 + rng.IntN(accounts-1)) % accounts
				lock := func(n int) *holdfast.Mutex { return clients[n%len(clients)].Mutex(string(rune('a' + n))) }
				err := holdfast.DoAll(ctx, func(context.Context) error {
					a, b := balance[from].Load(), balance[to].Load()
					time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
					balance[from].Store(a - 1)
					balance[to].Store(b + 1)
					return nil
				}, lock(from), lock(to))
				if err != nil {
					t.Errorf("transfer: %v", err)
					return
				}
			}
		})
	}
	crew.Wait()
	sum := int64(0)
	for i := range balance {
		sum += balance[i].Load()
	}
	if sum != 0 {
		t.Errorf("the accounts add up to %d; want 0", sum)
	}
}
