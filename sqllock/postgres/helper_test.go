package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// patience bounds how long a test waits for an event, for slow machines.
const patience = time.Minute

// database starts a server with the tables.
func database(t testing.TB, settings ...string) *testenv.PostgresServer {
	t.Helper()
	server := testenv.Postgres(t, settings...)
	initialise(t, server.DSN("postgres"))
	return server
}

// backend returns a Server on its own pool, as a process would have it.
func backend(t testing.TB, dsn string, cfg *sqllock.Config) (*sqllock.Server, *sql.DB) {
	t.Helper()
	db := pool(t, dsn)
	b := sqllock.New(db, postgres.Dialect(), cfg)
	t.Cleanup(func() { _ = b.Close() })
	return b, db
}

// party is one session on a Server. It renews only on request.
type party struct {
	driver.Session
	t    testing.TB
	b    *sqllock.Server
	db   *sql.DB
	id   string
	last atomic.Int64
}

// join opens a session as a separate process would.
func join(t testing.TB, dsn string, ttl time.Duration) *party {
	t.Helper()
	b, db := backend(t, dsn, nil)
	return session(t, b, db, ttl)
}

// joinByServer is join for a process that uses no sockets: the server carries all its pushes.
func joinByServer(t testing.TB, dsn string, ttl time.Duration) *party {
	t.Helper()
	b, db := backend(t, dsn, &sqllock.Config{NoSockets: true})
	return session(t, b, db, ttl)
}

func session(t testing.TB, b *sqllock.Server, db *sql.DB, ttl time.Duration) *party {
	t.Helper()
	p := &party{t: t, b: b, db: db, id: strings.ToLower(rand.Text())}
	ctx := limited(t)
	s, err := b.Open(ctx, driver.SessionConfig{ID: p.id, TTL: ttl})
	for (errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain)) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond) // the server was slow
		s, err = b.Open(ctx, driver.SessionConfig{ID: p.id, TTL: ttl})
	}
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return p
}

// limited returns a context that ends long after the test should have continued.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mutex returns a new exclusive request.
func (p *party) mutex(name string) *driver.Request {
	return &driver.Request{ID: fmt.Sprintf("%s-%d", p.id, p.last.Add(1)), Name: name, Mode: driver.Exclusive, N: 1,
		Wait: true}
}

func (p *party) shared(name string) *driver.Request {
	r := p.mutex(name)
	r.Mode = driver.Shared
	return r
}

func (p *party) permits(name string, n, limit int) *driver.Request {
	r := p.mutex(name)
	r.Mode, r.N, r.Limit = driver.Permits, n, limit
	return r
}

func (p *party) ask(r *driver.Request) driver.Reply {
	p.t.Helper()
	rep, err := p.Acquire(limited(p.t), r)
	if err != nil {
		p.t.Fatalf("Acquire: %v", err)
	}
	return rep
}

// take is ask for a request that must be granted at once.
func (p *party) take(r *driver.Request) driver.Hold {
	p.t.Helper()
	rep := p.ask(r)
	if rep.Token == 0 {
		p.t.Fatalf("%q is not granted: %+v, in the way %+v", r.Name, rep, rep.Holder)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
}

// queue is ask for a request that must wait.
func (p *party) queue(r *driver.Request) <-chan uint64 {
	p.t.Helper()
	rep := p.ask(r)
	if rep.Token != 0 {
		p.t.Fatalf("%q is granted, with token %d", r.Name, rep.Token)
	}
	return rep.Wake
}

// woken waits until a request is notified of its grant.
func (p *party) woken(r *driver.Request, wake <-chan uint64) driver.Hold {
	p.t.Helper()
	select {
	case token := <-wake:
		if token == 0 {
			p.t.Fatalf("%q: notified to ask again", r.Name)
		}
		return driver.Hold{Name: r.Name, ID: r.ID, Token: token}
	case <-time.After(patience):
		p.t.Fatalf("%q: never woken", r.Name)
	}
	return driver.Hold{}
}

func (p *party) free(h driver.Hold) {
	p.t.Helper()
	if err := p.Release(limited(p.t), h, 0); err != nil {
		p.t.Fatalf("Release: %v", err)
	}
}

// renew is Renew of one hold; the zero Change means no change.
func (p *party) renew(h driver.Hold) (driver.Change, error) {
	changes, err := p.Renew(limited(p.t), []driver.Hold{h})
	if err != nil || len(changes) == 0 {
		return driver.Change{}, err
	}
	return changes[0], nil
}

// client opens a holdfast client on its own Server.
func client(t testing.TB, dsn string, ttl time.Duration) *holdfast.Client {
	t.Helper()
	b, _ := backend(t, dsn, nil)
	return clientOn(t, b, ttl)
}

func clientOn(t testing.TB, b *sqllock.Server, ttl time.Duration) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(limited(t), b, &holdfast.Config{TTL: ttl})
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

// until waits for a condition that has no event.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this never happened: %s", what)
		}
	}
}

// value returns the single value of a query.
func value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(limited(t), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(limited(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func want(t testing.TB, err error, sentinel error, words ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("error %v; want %v", err, sentinel)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %v; want it to contain %q", err, w)
		}
	}
}

// named returns the server's URL with the test's name as the application's, to tell it from other
// tests at the same server.
func named(t testing.TB, server *testenv.PostgresServer) string {
	return server.DSN("postgres") + "&application_name=" + url.QueryEscape(t.Name())
}

// through is named through a proxy.
func through(t testing.TB, server *testenv.PostgresServer, proxy *testenv.TCPProxy) string {
	return server.DSNAt(proxy.Addr, "postgres") + "&application_name=" + url.QueryEscape(t.Name())
}
