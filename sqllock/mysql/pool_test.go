package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// exhaust takes all free connections of a pool, and returns a function that gives them back.
func exhaust(t *testing.T, db *sql.DB) (n int, back func()) {
	t.Helper()
	var all []*sql.Conn
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return len(all), func() {
		for _, c := range all {
			_ = c.Close()
		}
		all = nil
	}
}

// noPush is the dialect for a server that cannot wake waiters, such as a node of a cluster.
type noPush struct{ sqllock.Dialect }

func (l noPush) Check(ctx context.Context, db *sql.DB) (sqllock.Circumstances, error) {
	c, err := l.Dialect.Check(ctx, db)
	c.NoPush = "it is said so"
	return c, err
}

// renewable is the TTL of a lease that is renewed while a test waits for that.
const renewable = 6 * time.Second

// renewed waits until the lease of a name is renewed. It reads the row as admin.
func renewed(t *testing.T, admin *sql.DB, lease *holdfast.Lease, name string) {
	t.Helper()
	expires := func() int64 {
		return value[int64](t, admin, "SELECT COALESCE(MAX(expires), 0) FROM hf_lock WHERE name = ? AND token = ?",
			[]byte(name), lease.Token())
	}
	before := expires()
	eventually(t, "the lease is renewed", func() bool { return expires() > before || lease.Err() != nil })
	if err := lease.Err(); err != nil {
		t.Fatalf("lost: %v", err)
	}
}

// An application that uses up its pool does not block renewals, releases and hand-overs.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	server := maria(t)
	for _, size := range []int{3, 5} {
		for name, d := range map[string]sqllock.Dialect{"woken": mysql.Dialect(), "polling": noPush{mysql.Dialect()}} {
			t.Run(fmt.Sprint(size, " ", name), func(t *testing.T) {
				t.Parallel()
				db := pool(t, server.DSN("root", ""))
				db.SetMaxOpenConns(size)
				b := sqllock.New(db, d, nil)
				defer func() { _ = b.Close() }()
				c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: renewable})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close(context.Background()) }()
				if polls := b.Polling() != ""; polls != (name == "polling") {
					t.Errorf("Polling: %q", b.Polling())
				}
				taken, back := exhaust(t, db)
				defer back()
				if taken == 0 {
					t.Fatal("the application got no connection")
				}
				lease, err := c.Mutex("x" + t.Name()).Lock(t.Context())
				if err != nil {
					t.Fatalf("Lock: %v", err)
				}
				other := join(t, server.DSN("root", ""), time.Minute)
				r := other.req("x" + t.Name())
				rep := other.refused(r)
				renewed(t, other.db, lease, "x"+t.Name())
				if err := lease.Release(); err != nil {
					t.Errorf("Release: %v", err)
				}
				h := other.served(r, rep)
				waited := make(chan error, 1)
				go func() {
					lease, err := c.Mutex("x" + t.Name()).Lock(t.Context())
					if err == nil {
						err = lease.Release()
					}
					waited <- err
				}()
				eventually(t, "it waits", func() bool { return other.inspect("x"+t.Name()).Waiting == 1 })
				other.release(h)
				if err := <-waited; err != nil {
					t.Errorf("Lock: %v", err)
				}
				back()
			})
		}
	}
}

// A bell that has lost its connection to an application that uses up the pool still looks now and
// then.
func TestBellWithoutConnection(t *testing.T) {
	t.Parallel()
	server := maria(t)
	db := pool(t, server.DSN("root", ""))
	db.SetMaxOpenConns(4)
	b := joinOn(t, db, mysql.Dialect(), time.Hour) // so no renewal reports the grant
	a := join(t, server.DSN("root", ""), time.Minute)
	h := a.get(a.req("x"))
	r := b.req("x")
	rep := b.refused(r)
	first, back := exhaust(t, db)
	b.borrowed = first
	before := db.Stats().WaitCount
	got := make(chan *sql.Conn, 1)
	go func() { // takes the bell's connection when that is closed
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	eventually(t, "the application asks for one more", func() bool { return db.Stats().WaitCount > before })
	var c *sql.Conn
	eventually(t, "the application has the bell's connection", func() bool { // or the bell was first, again
		if bell := bellOf(t, &client{t: t, db: a.db, id: b.id}); bell != 0 {
			_, _ = a.db.Exec("KILL CONNECTION ?", bell) // it may have gone
		}
		select {
		case c = <-got:
		default:
		}
		return c != nil
	})
	a.release(h)
	h = b.served(r, rep)
	_ = c.Close()
	back()
	b.borrowed = 0
	b.release(h)
}

func TestPoolTooSmall(t *testing.T) {
	t.Parallel()
	server := maria(t)
	db := pool(t, server.DSN("root", ""))
	for size, ok := range map[int]bool{1: false, 2: false, 3: true, 0: true} {
		db.SetMaxOpenConns(size)
		b := sqllock.New(db, mysql.Dialect(), nil)
		s, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: ttl})
		if ok != (err == nil) || !ok && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "at least 3")) {
			t.Errorf("a pool of %d: %v", size, err)
		}
		if err == nil {
			_ = s.Close(t.Context())
		}
		_ = b.Close()
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("a pool of %d: %d connections are in use after Close", size, n)
		}
	}
}

// When the server accepts no more connections, leases are still renewed, and calls that need a
// connection fail soon.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	server := maria(t, "--max-connections=10")
	grant(server, "app", "hf_meta", "hf_lock", "hf_done", "hf_bell") // root may use one more
	admin := pool(t, server.DSN("root", ""))
	admin.SetMaxOpenConns(1)
	run(t, admin, "DO 1")
	c := user(t, pool(t, server.DSN("app", "")), renewable)
	lease, err := c.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	others := pool(t, server.DSN("app", ""))
	var all []*sql.Conn
	for {
		conn, err := others.Conn(t.Context())
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	if len(all) == 0 || len(all) > 10 {
		t.Fatalf("%d connections", len(all))
	}
	b := sqllock.New(pool(t, server.DSN("app", "")), mysql.Dialect(), nil)
	defer func() { _ = b.Close() }()
	if _, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: time.Minute}); !errors.Is(err,
		driver.ErrUnavailable) {
		t.Errorf("Open: %v; want ErrUnavailable", err)
	}
	renewed(t, admin, lease, "x")
	for _, conn := range all {
		_ = conn.Close()
	}
	_ = others.Close()
	if err := lease.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
	eventually(t, "another can be opened", func() bool {
		s, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: time.Minute})
		if err == nil {
			_ = s.Close(t.Context())
		}
		return err == nil
	})
	if why := b.Polling(); why != "" {
		t.Errorf("waiters poll: %s", why)
	}
}
