package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// Only the server's clock counts: one that is wrong by days, or different time zones, change
// nothing.
func testClockThatIsOff(t *testing.T, server *testenv.PostgresServer) {
	const ttl = time.Second
	for _, off := range []string{"-9999 hours", "9999 hours"} {
		now := fmt.Sprintf("(extract(epoch FROM statement_timestamp() + interval '%s') * 1000000)::bigint", off)
		var clients []*holdfast.Client
		var parties []*party
		for _, zone := range []string{"Asia/Kathmandu", "America/St_Johns"} {
			db := pool(t, named(t, server)+"&timezone="+zone)
			b := sqllock.New(db, postgres.DialectAt(now), nil)
			t.Cleanup(func() { _ = b.Close() })
			clients = append(clients, clientOn(t, b, 5*time.Second))
			parties = append(parties, session(t, b, db, ttl))
		}
		contend(t, clients, "clock "+off)
		p, q := parties[0], parties[1]
		asked := time.Now()
		held := p.take(p.mutex("off " + off))
		once := q.mutex(held.Name)
		once.Wait = false
		if rep := q.ask(once); rep.Token != 0 && time.Since(asked) < ttl {
			t.Errorf("clock %s: granted to another", off)
		}
		until(t, "the lease expires", func() bool { return q.ask(once).Token > held.Token })
	}
}

// After the clock is set back, leases last longer, and end no earlier than their holders may trust
// them. Tokens grow.
func testClockSetBack(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	run(t, admin, "CREATE TABLE clock (us bigint)", "INSERT INTO clock VALUES (1800000000000000)")
	move := func(d time.Duration) { run(t, admin, fmt.Sprintf("UPDATE clock SET us = us + %d", d.Microseconds())) }
	var parties []*party
	for range 2 {
		db := pool(t, named(t, server))
		b := sqllock.New(db, postgres.DialectAt("(SELECT us FROM clock)"), nil)
		t.Cleanup(func() { _ = b.Close() })
		parties = append(parties, session(t, b, db, time.Minute))
	}
	p, q := parties[0], parties[1]
	excluded := func(when string, h driver.Hold) {
		t.Helper()
		for _, r := range []*driver.Request{q.mutex(h.Name), q.shared(h.Name)} {
			r.Wait = false
			if rep := q.ask(r); rep.Token != 0 {
				t.Errorf("%s: granted to another, mode %d", when, r.Mode)
			}
		}
		if rec, err := q.b.Inspect(limited(t), h.Name); err != nil || len(rec.Holders) != 1 ||
			rec.Holders[0].Token != h.Token {
			t.Errorf("%s: Inspect: %+v, %v", when, rec, err)
		}
		if ch, err := p.renew(h); err != nil || ch.State != 0 {
			t.Errorf("%s: the holder's renewal: %+v, %v", when, ch, err)
		}
	}
	var last uint64
	for i, request := range []func() *driver.Request{
		func() *driver.Request { return p.mutex("set back") }, func() *driver.Request { return p.mutex("set back") },
		func() *driver.Request { return p.permits("set back/s", 1, 1) },
	} {
		if i == 2 {
			last = 0
		}
		h := p.take(request())
		if h.Token <= last {
			t.Errorf("token %d after %d", h.Token, last)
		}
		last = h.Token
		move(-time.Hour)
		if i < 2 {
			excluded("held before", h)
			move(30 * time.Second) // the lease continues
			excluded("held before, later", h)
		}
		p.free(h)
		h = p.take(request())
		if h.Token <= last {
			t.Errorf("token %d after %d", h.Token, last)
		}
		last = h.Token
		if i < 2 {
			excluded("taken afterwards", h)
		}
		r := request()
		r.ID = q.mutex("").ID
		wake := q.queue(r)
		if ch, err := q.renew(driver.Hold{Name: r.Name, ID: r.ID}); err != nil || ch.State == driver.Gone {
			t.Errorf("a place in the queue: %+v, %v", ch, err)
		}
		p.free(h)
		given := q.woken(r, wake)
		if given.Token <= last {
			t.Errorf("token %d after %d", given.Token, last)
		}
		last = given.Token
		q.free(given)
	}
	// At the end time passes again.
	h := p.take(p.mutex("set back"))
	move(3 * time.Hour)
	if h := q.take(q.mutex("set back")); h.Token <= last {
		t.Errorf("token %d after %d", h.Token, last)
	}
	if ch, err := p.renew(h); err != nil || ch.State != driver.Gone {
		t.Errorf("an expired lease: %+v, %v", ch, err)
	}
}

func TestClockSteps(t *testing.T) {
	t.Parallel()
	server := database(t)
	sqltest.ClockSteps(t, server.OwnClock(), func() *sql.DB { return pool(t, server.DSN("postgres")) }, postgres.Dialect)
}
