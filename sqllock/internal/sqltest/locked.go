package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	Open    func() *sql.DB                 // a pool of its own
	Block   func(name string) (end func()) // locks the row of name in a transaction
	Waiting func() int                     // statements that wait for a row
}

// user is a client of the library on a pool of its own.
func (x *Locked) user(t *testing.T) *holdfast.Client {
	b := sqllock.New(x.Open(), x.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// CrowdBehindALockedRow has a crowd ask for a name whose row somebody has locked, and give up, again and again. It has a few
// connections of the server at most, also for what it has given up; other names are taken and given back meanwhile.
func (x *Locked) CrowdBehindALockedRow(t *testing.T) {
	const crowd, most = 40, 10 // at most: as many requests as a name may have at once, cancels, and what was given up just now
	c := x.user(t)
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
	for range crowd {
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
			t.Fatal("nobody waits for the row")
		}
	}
	for range 10 {
		release(lock("b"))
		seen = max(seen, x.Waiting())
	}
	release(held)
	for range 20 { // what is given up must not add up
		time.Sleep(100 * time.Millisecond)
		seen = max(seen, x.Waiting())
	}
	if seen > most {
		t.Errorf("%d statements waited for the row at once; want %d at most", seen, most)
	}
}

// RenewalsBesideALockedRow asks for a name whose row somebody has locked, in a pool that the application has used up.
// Renewals share a connection with these requests, and wait for none of them.
func (x *Locked) RenewalsBesideALockedRow(t *testing.T) {
	const renewals, enough = 20, 15 * time.Second // a renewal takes some milliseconds, or a second if it waits for a row
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
	for db.Stats().InUse < 4 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
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
				r := &driver.Request{ID: fmt.Sprintf("id-%d-%d", i, n), Name: t.Name() + "/a", Mode: driver.Exclusive, N: 1, Wait: true}
				if rep, err := s.Acquire(short, r); err == nil {
					t.Errorf("Acquire of a name whose row is locked = %+v", rep)
				}
				cancel()
				asked.Add(1)
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // until they are at it
	began := time.Now()
	for n := range renewals {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		changes, err := s.Renew(ctx, holds)
		cancel()
		if err != nil || len(changes) > 0 {
			t.Errorf("Renew %d = %+v, %v", n, changes, err)
		}
	}
	if d := time.Since(began); d > enough {
		t.Errorf("%d renewals took %v, beside %d requests", renewals, d, asked.Load())
	}
}

// EndedUnheard ends a grant on the connection that is kept, which dies when the server has done that and before its answer is
// there. It is asked once more, on another connection, and the answer says what became of it all the same.
func EndedUnheard(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) {
	for _, do := range []struct {
		what string
		at   string // the statement that is not heard of
		run  func(ctx context.Context, b *sqllock.Server, s driver.Session, h driver.Hold) error
		want error
	}{
		{"Release", "UPDATE hf_lock", func(ctx context.Context, _ *sqllock.Server, s driver.Session, h driver.Hold) error {
			return s.Release(ctx, h, 0)
		}, nil},
		{"Release with a pause", "UPDATE hf_lock", func(ctx context.Context, _ *sqllock.Server, s driver.Session, h driver.Hold) error {
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
			db := OpenBreaking(t, admin, dsn)
			db.SetMaxOpenConns(3)
			b := sqllock.New(db.DB, dialect(), &sqllock.Config{Listen: listens(dialect(), admin)})
			t.Cleanup(func() { _ = b.Close() })
			s := open(t, b, "s")
			rep, err := s.Acquire(t.Context(), &driver.Request{ID: "id", Name: t.Name(), Mode: driver.Exclusive, N: 1})
			if err != nil || rep.Token == 0 {
				t.Fatalf("Acquire = %+v, %v", rep, err)
			}
			for db.Stats().InUse < 3 {
				app, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = app.Close() }()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			db.ArmAt(do.at, Unheard)
			err = do.run(ctx, b, s, driver.Hold{Name: t.Name(), ID: "id", Token: rep.Token})
			if db.Disarm() == "" {
				t.Fatal("every statement was heard of")
			}
			if !errors.Is(err, do.want) {
				t.Errorf("%s, whose first run was not heard: %v; want %v", do.what, err, do.want)
			}
		})
	}
}
