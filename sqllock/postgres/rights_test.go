package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func testInit(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	at := func(schema string) *sql.DB {
		run(t, admin, "CREATE SCHEMA IF NOT EXISTS "+schema)
		return pool(t, server.DSN("postgres")+"&search_path="+schema)
	}
	open := func(db *sql.DB) error {
		b := sqllock.New(db, postgres.Dialect(), nil)
		defer func() { _ = b.Close() }()
		s, err := b.Open(limited(t), driver.SessionConfig{ID: "a", TTL: time.Minute})
		if err == nil {
			err = s.Close(limited(t))
		}
		return err
	}
	// Without tables the error has advice.
	missing := at("missing")
	want(t, open(missing), driver.ErrRefused, "Init")
	if _, err := sqllock.New(missing, postgres.Dialect(), nil).Inspect(limited(t), "x"); err != nil {
		want(t, err, driver.ErrRefused, "Init")
	}
	// Several at once, repeatedly.
	for round := range 5 {
		schema := fmt.Sprintf("many%d", round)
		var all sync.WaitGroup
		for range 8 {
			db := at(schema)
			all.Go(func() {
				if err := sqllock.Init(limited(t), db, postgres.Dialect()); err != nil {
					t.Errorf("one of eight: %v", err)
				}
			})
		}
		all.Wait()
		if err := open(at(schema)); err != nil {
			t.Error(err)
		}
	}
	// An interrupted Init is completed, wherever it stopped.
	statements := sqllock.Schema(postgres.Dialect())
	for n := range statements {
		db := at(fmt.Sprintf("half%d", n))
		run(t, db, statements[:n]...)
		want(t, open(db), driver.ErrRefused, "Init")
		for range 2 {
			if err := sqllock.Init(limited(t), db, postgres.Dialect()); err != nil {
				t.Errorf("after %d statements: %v", n, err)
			}
		}
		if err := open(db); err != nil {
			t.Errorf("after %d statements: %v", n, err)
		}
	}
	// Schema does what Init does.
	byHand := at("byhand")
	run(t, byHand, statements...)
	if err := open(byHand); err != nil {
		t.Error(err)
	}
	// Tables of a later version stay unchanged.
	run(t, byHand, "UPDATE hf_meta SET version = 99")
	want(t, open(byHand), driver.ErrRefused, "version 99")
	want(t, sqllock.Init(limited(t), byHand, postgres.Dialect()), driver.ErrRefused, "version 99")
	run(t, byHand, "UPDATE hf_meta SET version = 0")
	want(t, open(byHand), driver.ErrRefused, "Init")
	// A user without the right to create tables learns which right that is.
	run(t, admin, "CREATE ROLE maker LOGIN", "CREATE SCHEMA foreigners", "GRANT USAGE ON SCHEMA foreigners TO maker")
	want(t, sqllock.Init(limited(t), pool(t, server.DSN("maker")+"&search_path=foreigners"), postgres.Dialect()),
		driver.ErrRefused, "right to create tables")
}

// A read-only database refuses requests, with a reason, and serves again when it takes writes.
func testReadOnly(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	run(t, admin, "CREATE ROLE reader LOGIN", "GRANT ALL ON hf_meta, hf_lock, hf_done TO reader",
		"GRANT SELECT ON hf_secret TO reader")
	p := join(t, server.DSN("reader"), time.Minute)
	held := p.take(p.mutex("readonly/held"))
	run(t, admin, "ALTER ROLE reader SET default_transaction_read_only = on")
	p.db.SetConnMaxLifetime(time.Nanosecond)
	until(t, "the pool's connections are new ones", func() bool {
		return value[string](t, p.db, "SHOW default_transaction_read_only") == "on"
	})
	_, err := p.Acquire(limited(t), p.mutex("readonly/new"))
	want(t, err, driver.ErrRefused, "read-only")
	_, err = p.Acquire(limited(t), p.shared("readonly/new"))
	want(t, err, driver.ErrRefused, "read-only")
	want(t, p.Release(limited(t), held, 0), driver.ErrRefused, "read-only")
	if _, err := p.b.Inspect(limited(t), "readonly/held"); err != nil {
		t.Errorf("reading is refused: %v", err)
	}
	run(t, admin, "ALTER ROLE reader RESET default_transaction_read_only")
	until(t, "it takes writes again", func() bool {
		return p.Release(limited(t), held, 0) == nil
	})
	p.free(p.take(p.mutex("readonly/new")))
}

// An application that uses up its pool loses no lease, and can release its locks.
func testExhaustedPool(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	for _, kind := range []string{"pgx", "foreign"} {
		for _, size := range []int{3, 5} {
			t.Run(fmt.Sprint(kind, size), func(t *testing.T) {
				t.Parallel()
				name := t.Name()
				db, err := sql.Open(kind, named(t, server))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				db.SetMaxOpenConns(size)
				b := sqllock.New(db, postgres.Dialect(), nil)
				t.Cleanup(func() { _ = b.Close() })
				if kind == "foreign" { // nothing has been renewed so far, and the pool is used up
					c, err := db.Conn(limited(t))
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = c.Close() }()
				}
				c := clientOn(t, b, 6*time.Second)
				if why := b.Polling(); (why == "") != (kind == "pgx") || kind == "foreign" && !strings.Contains(why, "pgx") {
					t.Errorf("%s: polling: %q", name, why)
				}
				m, err := c.Mutex(name + "/m").Lock(limited(t))
				if err != nil {
					t.Fatal(err)
				}
				s, err := c.Semaphore(name+"/s", 3).Acquire(limited(t), 2)
				if err != nil {
					t.Fatal(err)
				}
				var taken []*sql.Conn
				for db.Stats().InUse < size {
					conn, err := db.Conn(limited(t))
					if err != nil {
						t.Fatal(err)
					}
					taken = append(taken, conn)
				}
				if len(taken) == 0 {
					t.Fatalf("%s: nothing was left for the application", name)
				}
				written := func(row string) int64 {
					return value[int64](t, admin, "SELECT ver FROM hf_lock WHERE name = $1", []byte(name+row))
				}
				for row, l := range map[string]*holdfast.Lease{"/m": m, "/s": s} {
					first := written(row)
					until(t, "the lease is renewed twice", func() bool { return written(row) >= first+2 || l.Err() != nil })
					if err := l.Err(); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if err := l.Release(); err != nil {
						t.Errorf("%s: Release: %v", name, err)
					}
				}
				l, err := c.Mutex(name + "/m").TryLock(limited(t))
				if err != nil {
					t.Errorf("%s: TryLock with an exhausted pool: %v", name, err)
				} else if err := l.Release(); err != nil {
					t.Error(err)
				}
				for _, conn := range taken {
					_ = conn.Close()
				}
			})
		}
	}
	small := pool(t, server.DSN("postgres"))
	small.SetMaxOpenConns(2)
	b := sqllock.New(small, postgres.Dialect(), nil)
	_, err := b.Open(limited(t), driver.SessionConfig{ID: "a", TTL: time.Minute})
	want(t, err, driver.ErrInvalid, "2 connections", "at least 3", "SetMaxOpenConns")
}

// A pool of another driver works too, by polling.
func testOtherDriver(t *testing.T, server *testenv.PostgresServer) {
	open := func() (*sqllock.Server, *holdfast.Client) {
		db, err := sql.Open("foreign", named(t, server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		b := sqllock.New(db, postgres.Dialect(), nil)
		t.Cleanup(func() { _ = b.Close() })
		return b, clientOn(t, b, 5*time.Second)
	}
	b, first := open()
	_, second := open()
	if why := b.Polling(); !strings.Contains(why, "pgx") {
		t.Errorf("polling: %q", why)
	}
	contend(t, []*holdfast.Client{first, second}, "other driver")
}

// When the server has no free connection, that is an outage, and it ends.
func TestConnectionsUsedUp(t *testing.T) {
	t.Parallel()
	server := database(t, "max_connections=12", "superuser_reserved_connections=2", "max_wal_senders=0")
	admin := pool(t, server.DSN("postgres"))
	run(t, admin, "CREATE ROLE app LOGIN", "GRANT ALL ON hf_meta, hf_lock, hf_done TO app",
		"GRANT SELECT ON hf_secret TO app")
	p := join(t, server.DSN("app"), time.Minute)
	held := p.take(p.mutex("x"))
	others := pool(t, server.DSN("app"))
	var taken []*sql.Conn
	for {
		c, err := others.Conn(limited(t))
		if err != nil {
			if !strings.Contains(err.Error(), "53300") {
				t.Fatal(err)
			}
			break
		}
		taken = append(taken, c)
	}
	b := sqllock.New(pool(t, server.DSN("app")), postgres.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	_, err := b.Open(limited(t), driver.SessionConfig{ID: "a", TTL: time.Minute})
	want(t, err, driver.ErrUnavailable, "53300")
	if ch, err := p.renew(held); err != nil || ch.State != 0 {
		t.Errorf("Renew: %+v, %v", ch, err)
	}
	// More concurrent calls than connections: some report an outage.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r := p.mutex(fmt.Sprintf("y/%d", i))
			if _, err := p.Acquire(limited(t), r); err != nil && !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Acquire: %v", err)
			}
		})
	}
	all.Wait()
	for _, c := range taken {
		_ = c.Close()
	}
	_ = others.Close()
	until(t, "it can be opened", func() bool {
		s, err := b.Open(limited(t), driver.SessionConfig{ID: "a", TTL: time.Minute})
		if err == nil {
			err = s.Close(context.Background())
		}
		return err == nil
	})
	p.free(held)
}
