package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// patient bounds the wait for an event that a slow machine delays.
const patient = time.Minute

// maria starts a server and creates the tables in it.
func maria(t testing.TB, args ...string) *testenv.MariaDBServer {
	t.Helper()
	server := testenv.MariaDB(t, args...)
	initialise(t, server.DSN("root", ""))
	return server
}

// client is a session with its own Server and pool, as a process has them.
type client struct {
	driver.Session
	t   testing.TB
	ctx context.Context
	db  *sql.DB
	b   *sqllock.Server
	id  string
	ids int

	borrowed int // connections that the test itself has taken
}

// join opens a session on its own pool.
func join(t testing.TB, dsn string, ttl time.Duration) *client {
	t.Helper()
	return joinOn(t, pool(t, dsn), mysql.Dialect(), ttl)
}

// joinByServer is join for a process that uses no sockets: the server carries all its pushes.
func joinByServer(t testing.TB, dsn string, ttl time.Duration) *client {
	t.Helper()
	return joinWith(t, pool(t, dsn), mysql.Dialect(), &sqllock.Config{NoSockets: true}, ttl)
}

func joinOn(t testing.TB, db *sql.DB, d sqllock.Dialect, ttl time.Duration) *client {
	t.Helper()
	return joinWith(t, db, d, nil, ttl)
}

func joinWith(t testing.TB, db *sql.DB, d sqllock.Dialect, cfg *sqllock.Config, ttl time.Duration) *client {
	t.Helper()
	c := &client{t: t, ctx: t.Context(), db: db, id: strings.ToLower(rand.Text())}
	c.b = sqllock.New(db, d, cfg)
	var err error
	if c.Session, err = c.b.Open(c.ctx, driver.SessionConfig{ID: c.id, TTL: ttl}); err != nil {
		_ = c.b.Close()
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(c.close)
	return c
}

// close ends the session and its Server; it may be called again.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = c.Session.Close(ctx) // its server may be gone
	_ = c.b.Close()
	if n := c.db.Stats().InUse; n > c.borrowed {
		c.t.Errorf("%d connections are in use after Close", n-c.borrowed)
	}
}

// user is a client of the library.
func user(t testing.TB, db *sql.DB, ttl time.Duration) *holdfast.Client {
	t.Helper()
	b := sqllock.New(db, mysql.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// locks is Lock, again while it is not answered: an exchange of a short lease may take half a second.
func locks(t testing.TB, c *holdfast.Client, name string) (lease *holdfast.Lease) {
	t.Helper()
	if err := testenv.Repeated(func() (err error) {
		lease, err = c.Mutex(name).Lock(t.Context())
		return err
	}); err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return lease
}

// req returns an exclusive request that waits.
func (c *client) req(name string) *driver.Request {
	c.ids++
	return &driver.Request{
		ID: fmt.Sprintf("%s-%d", c.id, c.ids), Name: name, Mode: driver.Exclusive, N: 1, Wait: true,
		Info: fmt.Sprintf("%s %d %%/ü%s", c.id, c.ids, strings.Repeat(".", c.ids%7)), // of different lengths
	}
}

func (c *client) shared(name string) *driver.Request {
	r := c.req(name)
	r.Mode = driver.Shared
	return r
}

func (c *client) permits(name string, n, limit int) *driver.Request {
	r := c.req(name)
	r.Mode, r.N, r.Limit = driver.Permits, n, limit
	return r
}

func once(r *driver.Request) *driver.Request { r.Wait = false; return r }

func hold(r *driver.Request, token uint64) driver.Hold {
	return driver.Hold{Name: r.Name, ID: r.ID, Token: token}
}

// acquired is Acquire, again while it is not answered.
func (c *client) acquired(r *driver.Request) (rep driver.Reply, err error) {
	err = testenv.Repeated(func() (err error) { rep, err = c.Acquire(c.ctx, r); return err })
	return rep, err
}

// renewal is Renew, again while it is not answered.
func (c *client) renewal(h driver.Hold) (changes []driver.Change, err error) {
	err = testenv.Repeated(func() (err error) { changes, err = c.Renew(c.ctx, []driver.Hold{h}); return err })
	return changes, err
}

// released is Release, again while it is not answered. Then the grant may be gone.
func (c *client) released(h driver.Hold) error {
	asked := 0
	err := testenv.Repeated(func() error { asked++; return c.Release(c.ctx, h, 0) })
	if asked > 1 && over(err) {
		return nil
	}
	return err
}

// ask is Acquire that must be answered.
func (c *client) ask(r *driver.Request) driver.Reply {
	c.t.Helper()
	rep, err := c.acquired(r)
	if err != nil {
		c.t.Fatalf("Acquire(%q): %v", r.Name, err)
	}
	return rep
}

// get is Acquire that must be granted.
func (c *client) get(r *driver.Request) driver.Hold {
	c.t.Helper()
	rep := c.ask(r)
	if rep.Token == 0 {
		c.t.Fatalf("Acquire(%q) was not granted", r.Name)
	}
	return hold(r, rep.Token)
}

// refused is Acquire that must not be granted.
func (c *client) refused(r *driver.Request) driver.Reply {
	c.t.Helper()
	rep := c.ask(r)
	if rep.Token != 0 {
		c.t.Fatalf("Acquire(%q) was granted token %d", r.Name, rep.Token)
	}
	return rep
}

func (c *client) release(h driver.Hold) {
	c.t.Helper()
	if err := c.released(h); err != nil {
		c.t.Fatalf("Release(%q): %v", h.Name, err)
	}
}

func (c *client) renew(h driver.Hold) driver.Change {
	c.t.Helper()
	changes, err := c.renewal(h)
	if err != nil {
		c.t.Fatalf("Renew(%q): %v", h.Name, err)
	}
	if len(changes) == 0 {
		return driver.Change{}
	}
	return changes[0]
}

func (c *client) inspect(name string) driver.Record {
	c.t.Helper()
	rec, err := c.b.Inspect(c.ctx, name)
	if err != nil {
		c.t.Fatalf("Inspect(%q): %v", name, err)
	}
	return rec
}

// served waits until r is handed the lock, without renewing it.
func (c *client) served(r *driver.Request, rep driver.Reply) driver.Hold {
	c.t.Helper()
	h, err := c.handed(r, rep)
	if err != nil {
		c.t.Fatalf("%q: %v", r.Name, err)
	}
	return h
}

// handed is served for a goroutine that may not end the test.
func (c *client) handed(r *driver.Request, rep driver.Reply) (_ driver.Hold, err error) {
	end := time.NewTimer(patient)
	defer end.Stop()
	for rep.Token == 0 && err == nil {
		retry := time.NewTimer(time.Hour)
		if rep.Retry > 0 {
			retry.Reset(rep.Retry + time.Millisecond)
		}
		select {
		case token := <-rep.Wake:
			if rep.Token = token; token == 0 {
				rep, err = c.acquired(r)
			}
		case <-retry.C:
			rep, err = c.acquired(r)
		case <-end.C:
			err = fmt.Errorf("not handed over in %v", patient)
		}
		retry.Stop()
	}
	return hold(r, rep.Token), err
}

// eventually waits for a condition that has no event.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patient); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patient, what)
		}
	}
}

// value returns the single value of a query.
func value[T any](t testing.TB, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// run runs statements.
func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// over reports whether a release, perhaps repeated, is done.
func over(err error) bool {
	return err == nil || errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrTaken)
}
