package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// Tests of internals run on PostgreSQL; package sqllock/postgres has the rest.

func openPostgres(t *testing.T, dsn, id string) (*sqllock.Server, driver.Session, *sql.DB) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqllock.Init(t.Context(), db, postgres.Dialect()); err != nil {
		t.Fatal(err)
	}
	b := sqllock.New(db, postgres.Dialect(), nil)
	s, err := b.Open(t.Context(), driver.SessionConfig{ID: id, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _, _ = s.Close(ctx), b.Close(), db.Close()
	})
	return b, s, db
}

func acquire(t *testing.T, s driver.Session, r *driver.Request) (driver.Hold, driver.Reply) {
	t.Helper()
	if r.N == 0 {
		r.N = 1
	}
	rep, err := s.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", r.Name, err)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}, rep
}

// The sweep deletes only rows that nobody has used for long, and no token returns.
func TestSweepOnPostgres(t *testing.T) {
	b, s, db := openPostgres(t, testenv.Postgres(t).DSN("postgres"), "a")
	ctx := t.Context()
	mutex := func(id, name string) *driver.Request {
		return &driver.Request{ID: id, Name: name, Mode: driver.Exclusive, Wait: true}
	}
	release := func(h driver.Hold, keep time.Duration) {
		t.Helper()
		if err := s.Release(ctx, h, keep); err != nil {
			t.Fatal(err)
		}
	}
	idle, _ := acquire(t, s, mutex("a-1", "idle"))
	release(idle, 0)
	acquire(t, s, mutex("a-2", "held"))
	acquire(t, s, mutex("a-3", "waited for"))
	acquire(t, s, mutex("a-4", "waited for"))
	kept, _ := acquire(t, s, mutex("a-5", "kept"))
	release(kept, time.Hour)
	acquire(t, s, &driver.Request{ID: "a-6", Name: "read", Mode: driver.Shared})
	acquire(t, s, &driver.Request{ID: "a-7", Name: "permits", Mode: driver.Permits, Limit: 2})
	if err := testenv.Repeated(func() error { _, err := s.SetCount(ctx, "latch", 0); return err }); err != nil {
		t.Fatal(err)
	}
	// Many more, and one whose token is ahead of the clock. That one stays, because open Servers
	// know no floor above it.
	ahead := int64(idle.Token) + int64(time.Hour/time.Microsecond)
	for _, statement := range []string{
		fmt.Sprintf("UPDATE hf_lock SET token = %d WHERE name = 'idle'", ahead),
		`INSERT INTO hf_lock SELECT convert_to('many/' || n, 'UTF8'), kind, lim, counter, n, ver, at, hid, hsession,
			since, expires, keep, busy, kept, info, waiting, due, line, more FROM hf_lock, generate_series(1, 1200) n WHERE name = 'idle'`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (all string) {
		t.Helper()
		if err := db.QueryRow("SELECT coalesce(string_agg(convert_from(name, 'UTF8'), ',' ORDER BY name), '') FROM hf_lock").
			Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	sweep := func(idle time.Duration) {
		t.Helper()
		steps := 0
		for cursor := []byte{}; cursor != nil; steps++ {
			next, err := hook.SQLSweep(ctx, b, cursor, idle)
			if err != nil || steps > 10 {
				t.Fatalf("step %d: %v", steps, err)
			}
			cursor = next
		}
	}
	before := names()
	if sweep(time.Hour); names() != before {
		t.Errorf("rows used an hour ago are gone: %s", names())
	}
	sweep(0)
	const stay = "held,idle,kept,latch,permits,read,waited for"
	if got := names(); got != stay {
		t.Errorf("after the sweep: %s; want %s", got, stay)
	}
	// For a Server that was open and reads the floor when it sweeps, and for a new one.
	if _, err := db.Exec("UPDATE hf_meta SET floor = $1", ahead); err != nil {
		t.Fatal(err)
	}
	sweep(time.Hour)
	if h, _ := acquire(t, s, mutex("a-8", "never used yet")); int64(h.Token) <= ahead {
		t.Errorf("token %d after %d", h.Token, ahead)
	}
	c := sqllock.New(db, postgres.Dialect(), nil)
	defer func() { _ = c.Close() }()
	other, err := c.Open(ctx, driver.SessionConfig{ID: "b", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if h, _ := acquire(t, other, &driver.Request{ID: "b-1", Name: "never used", Mode: driver.Shared}); int64(
		h.Token) <= ahead {
		t.Errorf("token %d after %d", h.Token, ahead)
	}
	if _, rep := acquire(t, other, mutex("b-2", "held")); rep.Token != 0 {
		t.Error("the held name is free")
	}
	if err := other.Close(ctx); err != nil {
		t.Error(err)
	}
	sweptByAnother(t, db, postgres.Dialect)
}

// A finished request leaves nothing in memory, however it ended.
func TestNothingRemembered(t *testing.T) {
	server := testenv.Postgres(t)
	proxy := testenv.Proxy(t, server.Addr)
	b, s, _ := openPostgres(t, server.DSNAt(proxy.Addr, "postgres"), "a")
	_, other, _ := openPostgres(t, server.DSN("postgres"), "b")
	ctx := t.Context()
	over, cancel := context.WithCancel(ctx)
	cancel()
	check := func(what string) {
		t.Helper()
		if n := hook.SQLRemembered(b); n != 0 {
			t.Errorf("%s: %d requests are still in memory", what, n)
		}
	}
	ids := 0
	request := func(mode driver.Mode, wait bool) *driver.Request {
		ids++
		r := &driver.Request{ID: fmt.Sprintf("a-%d", ids), Name: fmt.Sprint("n", mode), Mode: mode, N: 1, Wait: wait}
		if mode == driver.Permits {
			r.Limit = 1
		}
		return r
	}
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Permits} {
		r := request(mode, false)
		h, _ := acquire(t, s, r)
		if err := s.Release(ctx, h, 0); err != nil {
			t.Error(err)
		}
		check("released")
		h, _ = acquire(t, s, request(mode, false))
		_ = s.Release(over, h, 0) // it has not ended: the Server remembers it for a lease
		_ = s.Release(ctx, h, 0)
		check("a repeated release")
		h, _ = acquire(t, s, request(mode, false))
		if err := b.Break(ctx, h.Name, h.Token); err != nil {
			t.Error(err)
		}
		if changes, err := s.Renew(ctx, []driver.Hold{h}); err != nil || len(changes) != 1 {
			t.Errorf("Renew: %+v, %v", changes, err)
		}
		check("broken")

		block := request(mode, false)
		block.ID = "b" + block.ID[1:]
		if mode == driver.Shared {
			block.Mode = driver.Exclusive
		}
		held, _ := acquire(t, other, block)
		acquire(t, s, request(mode, false))
		check("refused")
		waits := request(mode, true)
		acquire(t, s, waits)
		if err := s.Cancel(ctx, waits.Name, waits.ID); err != nil {
			t.Error(err)
		}
		check("cancelled")
		waits = request(mode, true)
		acquire(t, s, waits)
		if err := s.Cancel(over, waits.Name, waits.ID); err == nil {
			t.Error("a Cancel that was not sent succeeded")
		}
		check("a cancel without an answer")
		_ = s.Cancel(ctx, waits.Name, waits.ID)
		_, err := s.Acquire(over, request(mode, true))
		if err == nil {
			t.Error("an Acquire that was not sent succeeded")
		}
		_ = s.Cancel(over, waits.Name, fmt.Sprintf("a-%d", ids))
		check("an acquire and a cancel without an answer")
		waits = request(mode, true)
		_, rep := acquire(t, s, waits)
		if err := other.Release(ctx, held, 0); err != nil {
			t.Error(err)
		}
		token := <-rep.Wake
		if token == 0 { // means: ask again
			t.Fatalf("mode %d: woken without a token", mode)
		}
		if err := s.Release(ctx, driver.Hold{Name: waits.Name, ID: waits.ID, Token: token}, 0); err != nil {
			t.Error(err)
		}
		check("handed over and released")
	}
	if err := testenv.Repeated(func() error { _, err := s.SetCount(ctx, "latch", 1); return err }); err != nil {
		t.Error(err)
	}
	if _, err := s.Await(ctx, "latch", "a-l1"); err != nil {
		t.Error(err)
	}
	if err := s.Cancel(ctx, "latch", "a-l1"); err != nil {
		t.Error(err)
	}
	check("a cancelled await")
	rep, err := s.Await(ctx, "latch", "a-l2")
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.Repeated(func() error { _, err := other.CountDown(ctx, "latch", "one"); return err }); err != nil {
		t.Error(err)
	}
	if token := <-rep.Wake; token != 1 {
		t.Errorf("woken with %d", token)
	}
	if err := s.Cancel(ctx, "latch", "a-l2"); err != nil {
		t.Error(err)
	}
	if rep, err := s.Await(ctx, "latch", "a-l3"); err != nil || rep.Token != 1 {
		t.Errorf("Await of an open latch: %+v, %v", rep, err)
	}
	if _, err := s.Await(ctx, "no latch", "a-l4"); err == nil {
		t.Error("Await of no latch succeeded")
	}
	check("latches")
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Permits} {
		r := request(mode, true)
		r.Name += "/last"
		acquire(t, s, r)
	}
	proxy.Refuse()
	if err := s.Close(over); err == nil {
		t.Error("Close without a server succeeded")
	}
	check("closed")
}
