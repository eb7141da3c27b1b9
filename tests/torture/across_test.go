//go:build linux

package torture

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"
	"github.com/holdfast-lock/holdfast/zklock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLockAllAcrossStores: accounts have their locks at six stores. Transfers between them lose no
// money, and none waits for ever, whatever two accounts it needs in whatever order.
func TestLockAllAcrossStores(t *testing.T) {
	const crewSize, accounts = 6, 7
	transfers := testenv.Rounds(15, 60)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	backends := []driver.Backend{memlock.New()}
	maria, pg := "mysql:"+testenv.MariaDB(t).DSN("root", ""), testenv.Postgres(t).DSN("postgres")
	initialise(t, maria, mysql.Dialect())
	initialise(t, pg, postgres.Dialect())
	for _, url := range []string{testenv.Redis(t).URL(), testenv.ZooKeeper(t, "maxSessionTimeout=200000").URL(),
		"sqlite:" + filepath.Join(t.TempDir(), "locks.db"), maria, pg} {
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
	var workers sync.WaitGroup
	for w := range crewSize {
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		clients := make([]*holdfast.Client, len(backends))
		for i, b := range backends {
			// So that no session ends on a busy machine.
			c, err := holdfast.New(ctx, b, &holdfast.Config{TTL: time.Minute})
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
		workers.Go(func() {
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
	workers.Wait()
	sum := int64(0)
	for i := range balance {
		sum += balance[i].Load()
	}
	if sum != 0 {
		t.Errorf("the accounts add up to %d; want 0", sum)
	}
}

// open opens one of the stores.
func open(store string) (driver.Backend, error) {
	if path, ok := strings.CutPrefix(store, "sqlite:"); ok {
		return sqlite.Open(path, nil)
	}
	if servers, ok := strings.CutPrefix(store, "zookeeper://"); ok {
		return zklock.New(zklock.Config{Servers: strings.Split(servers, ",")})
	}
	if dsn, ok := strings.CutPrefix(store, "mysql:"); ok {
		return server("mysql", dsn, mysql.Dialect())
	}
	if strings.HasPrefix(store, "postgres://") {
		return server("pgx", store, postgres.Dialect())
	}
	conn, err := rueidisconn.Dial(store)
	if err != nil {
		return nil, err
	}
	return redislock.New(conn, nil), nil
}

// server opens a table on a database server, with a pool of its own.
func server(name, dsn string, d sqllock.Dialect) (driver.Backend, error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	return pooled{sqllock.New(db, d, nil), db}, nil
}

// pooled also closes its pool.
type pooled struct {
	*sqllock.Server
	db *sql.DB
}

func (p pooled) Close() error { return errors.Join(p.Server.Close(), p.db.Close()) }

func initialise(t *testing.T, store string, d sqllock.Dialect) {
	t.Helper()
	b, err := open(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqllock.Init(t.Context(), b.(pooled).db, d); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
