package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// belief is the time in which a client trusted a lease.
type belief struct {
	token       uint64
	from, until time.Time
}

// relay passes one lock around among the clients while faults happen, one after the other. It
// checks that no two trust it at once, and that tokens grow.
func relay(t *testing.T, clients []*holdfast.Client, harm []func()) {
	t.Helper()
	var mu sync.Mutex
	var beliefs []belief
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, c := range clients {
		for range 2 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					l, err := c.Mutex("relay").Lock(limited(t))
					if errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain) { // for about a TTL
						continue
					}
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					b := belief{token: l.Token(), from: time.Now()}
					for work := time.Now().Add(rand.N(3 * time.Millisecond)); ; {
						now := time.Now()
						if l.Err() != nil {
							break
						}
						b.until = now
						if now.After(work) {
							break
						}
					}
					mu.Lock()
					beliefs = append(beliefs, b)
					mu.Unlock()
					_ = l.Release() // the server may be down, or have lost the grant
				}
			})
		}
	}
	goesOn := func() {
		t.Helper()
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(beliefs)
		}
		before := count()
		until(t, "the lock is passed around", func() bool { return count() > before+50 })
	}
	for _, f := range harm {
		goesOn()
		f()
	}
	goesOn()
	close(stop)
	all.Wait()
	slices.SortFunc(beliefs, func(a, b belief) int { return cmp.Compare(a.token, b.token) })
	for i := 1; i < len(beliefs); i++ {
		a, b := beliefs[i-1], beliefs[i]
		if a.token == b.token {
			t.Errorf("token %d was given to two", a.token)
		}
		if !b.from.After(a.until) {
			t.Errorf("token %d was given out %v before its predecessor %d had ended", b.token, a.until.Sub(b.from), a.token)
		}
	}
	t.Logf("%d grants, %d faults", len(beliefs), len(harm))
}

// Several processes pass a lock around while the server crashes at any moment.
func TestCrashesDuringHandOvers(t *testing.T) {
	t.Parallel()
	server, _ := forgetful(t)
	var clients []*holdfast.Client
	for range 4 {
		clients = append(clients, client(t, server.DSN("postgres"), 1500*time.Millisecond))
	}
	crash := func() {
		server.Kill()
		server.Start()
	}
	relay(t, clients, []func(){crash, crash, crash, crash, crash})
}

// The same with other faults of the network and the server.
func TestOutages(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := database(t)
	var clients []*holdfast.Client
	var proxies []*testenv.TCPProxy
	for range 3 {
		p := testenv.Proxy(t, server.Addr)
		proxies = append(proxies, p)
		clients = append(clients, client(t, server.DSNAt(p.Addr, "postgres"), ttl))
	}
	relay(t, clients, []func(){
		func() { server.Restart(true) },
		func() {
			proxies[0].Hole()
			time.Sleep(ttl + ttl/2)
			proxies[0].Heal()
		},
		func() { // for longer than a lease
			server.Pause()
			time.Sleep(ttl + ttl/2)
			server.Continue()
		},
		proxies[1].Reset,
		func() {
			proxies[2].DropReplies()
			time.Sleep(ttl)
			proxies[2].Heal()
		},
		func() {
			proxies[1].Refuse()
			time.Sleep(ttl / 2)
			proxies[1].Heal()
		},
		func() {
			server.Exec(
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
		},
		func() { server.KillBackend("") },
	})
}

// A server that does not answer blocks callers no longer than their contexts last.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	server := database(t)
	dsn := server.DSN("postgres")
	for _, level := range []string{"read%20committed", "serializable"} {
		p := join(t, dsn+"&default_transaction_isolation="+level, time.Minute)
		fresh, another := sqllock.New(pool(t, dsn), postgres.Dialect(), nil), pool(t, dsn)
		held, other := p.take(p.mutex(level+"/held")), p.take(p.mutex(level+"/other"))
		reader := p.take(p.shared(level + "/reader"))
		waits := p.mutex(level + "/held")
		p.queue(waits)
		server.Pause()
		calls := map[string]func(ctx context.Context) error{
			"Acquire": func(ctx context.Context) error { _, err := p.Acquire(ctx, p.mutex(level+"/new")); return err },
			"Acquire shared": func(ctx context.Context) error {
				_, err := p.Acquire(ctx, p.shared(level+"/new"))
				return err
			},
			"Renew": func(ctx context.Context) error {
				_, err := p.Renew(ctx, []driver.Hold{held, reader, {Name: waits.Name, ID: waits.ID}})
				return err
			},
			"Release":        func(ctx context.Context) error { return p.Release(ctx, held, 0) },
			"Release shared": func(ctx context.Context) error { return p.Release(ctx, reader, 0) },
			"Cancel":         func(ctx context.Context) error { return p.Cancel(ctx, waits.Name, waits.ID) },
			"Downgrade":      func(ctx context.Context) error { return p.Downgrade(ctx, other) },
			"Adopt":          func(ctx context.Context) error { return p.Adopt(ctx, other, "new", "") },
			"SetCount":       func(ctx context.Context) error { _, err := p.SetCount(ctx, level+"/latch", 1); return err },
			"CountDown":      func(ctx context.Context) error { _, err := p.CountDown(ctx, level+"/latch", "a"); return err },
			"Await":          func(ctx context.Context) error { _, err := p.Await(ctx, level+"/latch", "a"); return err },
			"Inspect":        func(ctx context.Context) error { _, err := p.b.Inspect(ctx, level+"/held"); return err },
			"List":           func(ctx context.Context) error { _, err := p.b.List(ctx, "", "", 10); return err },
			"Break":          func(ctx context.Context) error { return p.b.Break(ctx, level+"/held", held.Token) },
			"SetLimit":       func(ctx context.Context) error { return p.b.SetLimit(ctx, level+"/held", 1) },
			"Open": func(ctx context.Context) error {
				_, err := fresh.Open(ctx, driver.SessionConfig{ID: "a", TTL: time.Minute})
				return err
			},
			"Init": func(ctx context.Context) error { return sqllock.Init(ctx, another, postgres.Dialect()) },
		}
		var all sync.WaitGroup
		for what, f := range calls {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				if err := answers(t, what, func() error { return f(ctx) }); !errors.Is(err, driver.ErrUnavailable) &&
					!errors.Is(err, driver.ErrUncertain) {
					t.Errorf("%s: %v; want ErrUnavailable or ErrUncertain", what, err)
				}
			})
		}
		all.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		if err := answers(t, "Close of the session", func() error { return p.Close(ctx) }); err == nil {
			t.Error("Close of the session succeeded")
		}
		cancel()
		_ = answers(t, "Close", p.b.Close)
		_ = answers(t, "Close", fresh.Close)
		if n := p.db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are not returned", n)
		}
		server.Continue()
	}
}

// answers fails the test if f hangs.
func answers(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience / 2):
		t.Errorf("%s hangs", what)
		return fmt.Errorf("%w: it hangs", driver.ErrUnavailable)
	}
}

// A pool of pgx's own under database/sql works the same, and gets its connections back too.
func testPoolOfPgx(t *testing.T, server *testenv.PostgresServer) {
	under, err := pgxpool.New(limited(t), named(t, server)+"&pool_max_conns=6")
	if err != nil {
		t.Fatal(err)
	}
	defer under.Close()
	db := stdlib.OpenDBFromPool(under)
	defer func() { _ = db.Close() }()
	b := sqllock.New(db, postgres.Dialect(), nil)
	p, q := session(t, b, db, time.Hour), join(t, named(t, server), time.Hour)
	if why := b.Polling(); why != "" {
		t.Errorf("polling: %s", why)
	}
	for range 3 {
		held := q.take(q.mutex("pgxpool"))
		r := p.mutex("pgxpool")
		wake := p.queue(r)
		q.free(held)
		p.free(p.woken(r, wake))
	}
	if err := errors.Join(p.Close(limited(t)), b.Close()); err != nil {
		t.Error(err)
	}
	until(t, "all connections are returned", func() bool { return under.Stat().AcquiredConns() == 0 })
}

// A Server returns its connections to the pool, including the one that listens.
func testNothingKept(t *testing.T, server *testenv.PostgresServer) {
	listen := pool(t, named(t, server))
	for _, cfg := range []*sqllock.Config{nil, {Listen: listen}} {
		b, db := backend(t, named(t, server), cfg)
		p, late := session(t, b, db, time.Minute), session(t, b, db, time.Minute)
		for _, r := range []*driver.Request{p.mutex("kept/m"), p.shared("kept/r"), p.permits("kept/s", 1, 2)} {
			p.take(r)
		}
		if n := db.Stats().InUse + listen.Stats().InUse; n != 2 {
			t.Errorf("%d connections are in use; want one for notifications and one for renewals", n)
		}
		if err := p.Close(limited(t)); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if n := db.Stats().InUse + listen.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use after Close", n)
		}
		_, err := p.Renew(limited(t), []driver.Hold{{Name: "x", ID: "y"}})
		want(t, err, driver.ErrClosed)
		_, err = late.Renew(limited(t), []driver.Hold{{Name: "x", ID: "y"}})
		want(t, err, driver.ErrClosed)
		_, err = b.Open(limited(t), driver.SessionConfig{ID: "a", TTL: time.Minute})
		want(t, err, driver.ErrClosed)
		_, err = b.Inspect(limited(t), "kept/m")
		want(t, err, driver.ErrClosed)
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use after calls after Close", n)
		}
	}
}
