package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// atOnce runs request for every party at the same moment and returns the grants.
func atOnce(t *testing.T, all []*party, request func(i int, p *party) *driver.Request) (
	held []driver.Hold, owners []int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i, p := range all {
		r := request(i, p)
		r.Wait = false
		wg.Go(func() {
			<-begin
			rep, err := p.Acquire(limited(t), r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("Acquire: %v", err)
			case rep.Token != 0:
				held, owners = append(held, driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}), append(owners, i)
			}
		})
	}
	close(begin)
	wg.Wait()
	return held, owners
}

// One statement that counts and inserts would count rows from before it waited for the row.
func testPermitsAtOnce(t *testing.T, server *testenv.PostgresServer) {
	var all []*party
	for range 4 {
		all = append(all, join(t, named(t, server), time.Minute))
	}
	for range testenv.Rounds(40, 200) {
		held, owners := atOnce(t, all, func(_ int, p *party) *driver.Request { return p.permits("permits", 1, 2) })
		if len(held) != 2 {
			t.Fatalf("%d hold 2 permits", len(held))
		}
		for i, h := range held {
			all[owners[i]].free(h)
		}
	}
}

func testReadersAndWriters(t *testing.T, server *testenv.PostgresServer) {
	var all []*party
	for range 4 {
		all = append(all, join(t, named(t, server), time.Minute))
	}
	writers := 0
	rounds := testenv.Rounds(40, 200)
	for round := range rounds {
		held, owners := atOnce(t, all, func(i int, p *party) *driver.Request {
			if (i+round)%4 == 0 {
				return p.mutex("readers")
			}
			return p.shared("readers")
		})
		writes := 0
		for _, i := range owners {
			if (i+round)%4 == 0 {
				writes++
			}
		}
		if writes > 1 || writes == 1 && len(held) > 1 || writes == 0 && len(held) != 3 {
			t.Fatalf("%d writers among %d holders", writes, len(held))
		}
		writers += writes
		for i, h := range held {
			all[owners[i]].free(h)
		}
	}
	t.Logf("the writer was first in %d of %d rounds", writers, rounds)
}

// Whatever isolation level the role or the URL asks for, the statements run under READ COMMITTED.
// Serialization failures are repeated.
func testIsolation(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	for _, level := range []string{"repeatable read", "serializable"} {
		role := "isolation_" + level[:4]
		run(t, admin, "CREATE ROLE "+role+" LOGIN SUPERUSER",
			fmt.Sprintf("ALTER ROLE %s SET default_transaction_isolation = '%s'", role, level))
		urls := map[string]string{
			"role": server.DSN(role),
			"url":  server.DSN("postgres") + "&default_transaction_isolation=" + url.PathEscape(level),
		}
		for by, dsn := range urls {
			t.Run(by+" "+level, func(t *testing.T) {
				if got := value[string](t, pool(t, dsn), "SHOW transaction_isolation"); got != level {
					t.Fatalf("isolation %s", got)
				}
				contend(t, []*holdfast.Client{client(t, dsn, time.Minute), client(t, dsn, time.Minute)}, t.Name())
			})
		}
	}
	// The level changes after Check.
	run(t, admin, "CREATE ROLE isolation_late LOGIN SUPERUSER")
	b, db := backend(t, server.DSN("isolation_late"), nil)
	c := clientOn(t, b, time.Minute)
	run(t, admin, "ALTER ROLE isolation_late SET default_transaction_isolation = serializable")
	db.SetConnMaxLifetime(time.Nanosecond)
	until(t, "the pool's connections are new ones", func() bool {
		return value[string](t, db, "SHOW transaction_isolation") == "serializable"
	})
	contend(t, []*holdfast.Client{c, client(t, server.DSN("postgres"), time.Minute)}, t.Name())
}

// unanswered reports whether err is only that a release got no answer. The server ends the session of a
// client that stands still for a second within a transaction. The release goes on in the background.
func unanswered(err error) bool {
	var e *holdfast.Error
	return errors.As(err, &e) && e.Op == "release" &&
		(errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable))
}

// contend uses every kind of lock from several goroutines of each client, and checks exclusion.
func contend(t *testing.T, clients []*holdfast.Client, name string) {
	t.Helper()
	ctx := limited(t)
	var mutex, writer, readers, permits, late atomic.Int64
	answered := func(err error) error {
		const most = 3 // of all these releases
		if unanswered(err) && late.Add(1) <= most {
			return nil
		}
		return err
	}
	last := uint64(0)
	var all sync.WaitGroup
	for _, c := range clients {
		for range 3 {
			all.Go(func() {
				for i := range testenv.Rounds(3, 6) {
					err := answered(c.Mutex(name+"/m").Do(ctx, func(ctx context.Context) error {
						if n := mutex.Add(1); n != 1 {
							t.Errorf("%d hold the mutex", n)
						}
						if token := holdfast.Token(ctx); token <= last {
							t.Errorf("token %d after %d", token, last)
						} else {
							last = token
						}
						mutex.Add(-1)
						return nil
					}))
					rw := c.RWMutex(name + "/rw")
					if i%3 == 0 {
						err = errors.Join(err, answered(rw.Do(ctx, func(context.Context) error {
							if w, r := writer.Add(1), readers.Load(); w != 1 || r != 0 {
								t.Errorf("%d writers and %d readers", w, r)
							}
							writer.Add(-1)
							return nil
						})))
					} else {
						err = errors.Join(err, answered(rw.RDo(ctx, func(context.Context) error {
							readers.Add(1)
							if w := writer.Load(); w != 0 {
								t.Errorf("%d writers with a reader", w)
							}
							readers.Add(-1)
							return nil
						})))
					}
					l, serr := c.Semaphore(name+"/s", 2).Acquire(ctx, 1)
					if serr == nil {
						if n := permits.Add(1); n > 2 {
							t.Errorf("%d hold 2 permits", n)
						}
						permits.Add(-1)
						serr = answered(l.Release())
					}
					if err = errors.Join(err, serr); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	latch := clients[0].Latch(name + "/l")
	if err := testenv.Repeated(func() error { _, err := latch.Set(ctx, 1); return err }); err != nil {
		t.Error(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- clients[1].Latch(name + "/l").Wait(ctx) }()
	if err := testenv.Repeated(func() error { _, err := latch.CountDown(ctx, "a"); return err }); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// Rows are locked in one order, so that no two statements or transactions deadlock.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	server := database(t, "deadlock_timeout=10ms")
	const servers, each = 4, 16
	enough := int64(testenv.Rounds(100, 3000))
	// On a slow machine most of the leases are lost, and most of the locks are taken again.
	const bound = 5 * patience
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var all sync.WaitGroup
	var done atomic.Int64
	var ends []func()
	for range servers {
		b, db := backend(t, server.DSN("postgres"), nil)
		db.SetMaxOpenConns(20)
		db.SetMaxIdleConns(20)
		ends = append(ends, func() { _, _ = b.Close(), db.Close() })
		for s := range each {
			// A short TTL causes many concurrent renewals of several names.
			c := clientOn(t, b, 1500*time.Millisecond)
			all.Go(func() {
				defer func() { _ = c.Close(limited(t)) }()
				for i := s; ctx.Err() == nil; i++ {
					var l interface{ Release() error }
					var err error
					lock, sem := fmt.Sprintf("lock/%d", i%4), fmt.Sprintf("sem/%d", i%4)
					switch i % 5 {
					case 0:
						l, err = c.RWMutex(lock).RLock(ctx)
					case 1:
						l, err = c.Semaphore(sem, 3).Acquire(ctx, 1+i%2)
					case 2:
						l, err = holdfast.LockAll(ctx, c.Mutex(fmt.Sprintf("lock/%d", (i+1)%4)), c.Mutex(lock))
					case 3:
						short, stop := context.WithTimeout(ctx, 5*time.Millisecond)
						l, err = c.Mutex(lock).Lock(short)
						stop()
					default:
						l, err = c.Mutex(lock).Lock(ctx)
					}
					if err == nil {
						err = l.Release()
						if done.Add(1) >= enough {
							cancel()
						}
					}
					// A slow machine is not a failure.
					slow := []error{nil, context.Canceled, context.DeadlineExceeded, holdfast.ErrLost, holdfast.ErrUnavailable,
						holdfast.ErrUncertain}
					if !slices.ContainsFunc(slow, func(s error) bool { return errors.Is(err, s) }) {
						t.Errorf("step %d: %v", i%5, err)
					}
				}
			})
		}
	}
	all.Wait()
	if done.Load() < enough {
		t.Errorf("only %d locks in %v; want %d", done.Load(), bound, enough)
	}
	// A process reports its counts at the latest when it ends.
	for _, end := range ends {
		end()
	}
	until(t, "the sessions have ended", func() bool { return len(server.Backends("query LIKE '%hf_lock%'")) == 0 })
	admin := pool(t, server.DSN("postgres"))
	if n := value[int](t, admin, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d locks", done.Load())
}
