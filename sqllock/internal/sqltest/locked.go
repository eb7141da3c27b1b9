package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// Locked is a server on which a test locks rows.
type Locked struct {
	Dialect func() sqllock.Dialect
	Open    func() *sql.DB                 // a new pool
	Block   func(name string) (end func()) // locks the row of name in a transaction
	Waiting func() int                     // statements that wait for a row
}

// client returns a client of the library on its own pool, with a TTL of a minute.
func (x *Locked) client(t *testing.T) *holdfast.Client {
	t.Helper()
	return x.clientOn(t, x.Dialect(), time.Minute)
}

func (x *Locked) clientOn(t *testing.T, d sqllock.Dialect, ttl time.Duration) *holdfast.Client {
	t.Helper()
	b := sqllock.New(x.Open(), d, nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: ttl, Passes: -1}) // each call queues at the store
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// ManyRequestsForALockedRow requests a name with a locked row many times, and gives up, repeatedly.
// The requests use few of the server's connections, abandoned ones included; other names can be
// taken and released meanwhile.
func (x *Locked) ManyRequestsForALockedRow(t *testing.T) {
	const many, most = 40, 10 // at most: the concurrent requests of a name, cancels, and requests just abandoned
	c := x.client(t)
	own := func(name string) string { return t.Name() + "/" + name }
	lock := func(name string) *holdfast.Lease {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		l, err := c.Mutex(own(name)).Lock(ctx)
		if err != nil {
			t.Fatalf("Lock(%q): %v", name, err)
		}
		return l
	}
	release := func(l *holdfast.Lease) {
		t.Helper()
		if err := l.Release(); err != nil {
			t.Errorf("Release(%q): %v", l.Name(), err)
		}
	}
	held := lock("mine")
	release(lock("a"))
	end := x.Block(t.Name() + "/a")
	defer end()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range many {
		all.Go(func() {
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				if l, err := c.Mutex(own("a")).Lock(short); err == nil {
					t.Error("a lock was granted whose row is locked")
					_ = l.Release()
				}
				cancel()
			}
		})
	}
	seen := 0
	for began := time.Now(); seen == 0; time.Sleep(10 * time.Millisecond) {
		if seen = x.Waiting(); time.Since(began) > 30*time.Second {
			t.Fatal("nothing waits for the row")
		}
	}
	for range 10 {
		release(lock("b"))
		seen = max(seen, x.Waiting())
	}
	release(held)
	for range 20 { // abandoned requests must not add up
		time.Sleep(100 * time.Millisecond)
		seen = max(seen, x.Waiting())
	}
	if seen > most {
		t.Errorf("%d statements waited for the row at once; want %d at most", seen, most)
	}
}

// RenewalsWithALockedRow requests a name with a locked row, on a pool that the application has used
// up. Renewals share a connection with these requests, and wait for none of them.
func (x *Locked) RenewalsWithALockedRow(t *testing.T) {
	const renewals, enough = 20, 750 * time.Millisecond // a renewal takes a second if it waits for a row
	db := x.Open()
	db.SetMaxOpenConns(4)
	b := sqllock.New(db, x.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	s := open(t, b, "s")
	hold := func(name string) driver.Hold {
		t.Helper()
		name = t.Name() + "/" + name
		rep, err := s.Acquire(t.Context(), &driver.Request{ID: "id", Name: name, Mode: driver.Exclusive, N: 1})
		if err != nil || rep.Token == 0 {
			t.Fatalf("Acquire(%q) = %+v, %v", name, rep, err)
		}
		return driver.Hold{Name: name, ID: "id", Token: rep.Token}
	}
	holds := []driver.Hold{hold("mine")}
	if err := s.Release(t.Context(), hold("a"), 0); err != nil {
		t.Fatal(err)
	}
	exhaust(t, db)
	end := x.Block(t.Name() + "/a")
	defer end()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var asked atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				short, cancel := context.WithTimeout(ctx, 2*time.Second)
				r := &driver.Request{ID: fmt.Sprintf("id-%d-%d", i, n), Name: t.Name() + "/a", Mode: driver.Exclusive, N: 1,
					Wait: true}
				if rep, err := s.Acquire(short, r); err == nil {
					t.Errorf("Acquire of a name whose row is locked = %+v", rep)
				}
				cancel()
				asked.Add(1)
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // until they wait
	var took []time.Duration
	for n := range renewals {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		changes, err := s.Renew(ctx, holds)
		cancel()
		if err != nil || len(changes) > 0 {
			t.Errorf("Renew %d = %+v, %v", n, changes, err)
		}
		took = append(took, time.Since(began))
	}
	if slices.Sort(took); took[renewals/2] > enough { // a busy machine delays some
		t.Errorf("renewals took %v, with %d requests", took, asked.Load())
	}
}

// breakable returns a Server on a small pool whose connections break.
func breakable(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) (*Breaking, *sqllock.Server) {
	t.Helper()
	db := OpenBreaking(t, admin, dsn)
	db.SetMaxOpenConns(3)
	b := sqllock.New(db.DB, dialect(), &sqllock.Config{Listen: listens(dialect(), admin)})
	t.Cleanup(func() { _ = b.Close() })
	return db, b
}

// exhaust takes all free connections of a pool until the test ends.
func exhaust(t *testing.T, db *sql.DB) {
	t.Helper()
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// EndedUnanswered ends a grant on the reserved connection, which dies after the server's execution
// and before the answer. The call is repeated on another connection, and its result is still
// correct.
func EndedUnanswered(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) {
	for _, do := range []struct {
		what string
		at   string // the statement without an answer
		run  func(ctx context.Context, b *sqllock.Server, s driver.Session, h driver.Hold) error
		want error
	}{
		{"Release", "UPDATE hf_lock", func(ctx context.Context, _ *sqllock.Server, s driver.Session, h driver.Hold) error {
			return s.Release(ctx, h, 0)
		}, nil},
		{"Release with a pause", "UPDATE hf_lock", func(ctx context.Context, _ *sqllock.Server, s driver.Session,
			h driver.Hold) error {
			return s.Release(ctx, h, time.Hour)
		}, nil},
		{"Break", "UPDATE hf_lock", func(ctx context.Context, b *sqllock.Server, _ driver.Session, h driver.Hold) error {
			return b.Break(ctx, h.Name, h.Token)
		}, nil},
		{"SetCount", "COMMIT\n", func(ctx context.Context, _ *sqllock.Server, s driver.Session, h driver.Hold) error {
			_, err := s.SetCount(ctx, h.Name+"/latch", 1)
			return err
		}, driver.ErrUncertain},
	} {
		t.Run(do.what, func(t *testing.T) {
			t.Parallel()
			db, b := breakable(t, dialect, admin, dsn)
			s := open(t, b, "s")
			rep, err := s.Acquire(t.Context(), &driver.Request{ID: "id", Name: t.Name(), Mode: driver.Exclusive, N: 1})
			if err != nil || rep.Token == 0 {
				t.Fatalf("Acquire = %+v, %v", rep, err)
			}
			exhaust(t, db.DB)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			db.ArmAt(do.at, Unanswered)
			err = do.run(ctx, b, s, driver.Hold{Name: t.Name(), ID: "id", Token: rep.Token})
			if db.Disarm() == "" {
				t.Fatal("every statement was answered")
			}
			if !errors.Is(err, do.want) {
				t.Errorf("%s, whose first run was not answered: %v; want %v", do.what, err, do.want)
			}
		})
	}
}

// RemovedUnanswered removes a latch on the reserved connection, which dies after the server's
// execution and before the answer. Somebody sets the latch again before the call is repeated on
// another connection. The repeat does not remove that latch.
func RemovedUnanswered(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) {
	db, b := breakable(t, dialect, admin, dsn)
	other := sqllock.New(admin, dialect(), nil)
	t.Cleanup(func() { _ = other.Close() })
	s := open(t, other, "other")
	open(t, b, "s")
	if _, err := s.SetCount(t.Context(), t.Name(), 1); err != nil {
		t.Fatal(err)
	}
	exhaust(t, db.DB)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	db.ArmAt("COMMIT\n", Unanswered)
	again := make(chan error, 1)
	go func() {
		for {
			created, err := s.SetCount(ctx, t.Name(), 5)
			if created || err != nil {
				again <- err
				return
			}
			time.Sleep(5 * time.Millisecond) // no event reports it
		}
	}()
	err := b.RemoveLatch(ctx, t.Name())
	if db.Disarm() == "" {
		t.Fatal("every statement was answered")
	}
	if !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("RemoveLatch, whose first run was not answered: %v; want ErrUncertain", err)
	}
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	if rec, err := other.Inspect(t.Context(), t.Name()); err != nil || rec.Kind != driver.Latch || rec.Count != 5 {
		t.Errorf("Inspect = %+v, %v; want the latch that was set after the removal", rec, err)
	}
}
