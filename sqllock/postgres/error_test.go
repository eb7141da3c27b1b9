package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// Prepared statements do not stay valid for ever: the application may drop them, and the tables may
// change. Callers must not notice.
func testPreparedBefore(t *testing.T, server *testenv.PostgresServer) {
	run(t, pool(t, server.DSN("postgres")), "CREATE SCHEMA prepared")
	dsn := named(t, server) + "&search_path=prepared"
	initialise(t, dsn)
	for what, harm := range map[string]func(p *party){
		"deallocated": func(p *party) { run(t, p.db, "DEALLOCATE ALL") },
		"another type": func(p *party) {
			run(t, pool(t, dsn), "ALTER TABLE hf_lock ALTER COLUMN lim TYPE bigint, ALTER COLUMN kind TYPE integer",
				"ALTER TABLE hf_meta ADD COLUMN more integer")
		},
	} {
		p := join(t, dsn, time.Minute)
		p.db.SetMaxOpenConns(3) // one to work with
		use := func() {
			t.Helper()
			h := p.take(p.mutex("x"))
			r := p.mutex("x")
			wake := p.queue(r)
			if ch, err := p.renew(h); err != nil || ch.State != 0 {
				t.Errorf("%s: Renew: %+v, %v", what, ch, err)
			}
			p.free(h)
			p.free(p.woken(r, wake))
			p.free(p.take(p.shared("y")))
			if err := testenv.Repeated(func() error { _, err := p.SetCount(limited(t), "z", 2); return err }); err != nil {
				t.Errorf("%s: SetCount: %v", what, err)
			}
			if err := testenv.Repeated(func() error { _, err := p.CountDown(limited(t), "z", "a"); return err }); err != nil {
				t.Errorf("%s: CountDown: %v", what, err)
			}
			if _, err := p.b.Inspect(limited(t), "x"); err != nil {
				t.Errorf("%s: Inspect: %v", what, err)
			}
		}
		use()
		harm(p)
		use()
	}
}

// A server that ends idle connections refuses nothing by that.
func testSilentConnections(t *testing.T, server *testenv.PostgresServer) {
	for _, level := range []string{"read%20committed", "serializable"} {
		p := join(t, named(t, server)+"&idle_session_timeout=1000&default_transaction_isolation="+level, time.Minute)
		r := p.mutex("silent/" + level)
		var reply driver.Reply
		// Without statements for a second, this process has no connection.
		err := testenv.Repeated(func() (err error) { reply, err = p.Acquire(limited(t), r); return err })
		if err != nil || reply.Token == 0 {
			t.Fatalf("%s: Acquire: %+v, %v", level, reply, err)
		}
		h := driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
		admin := pool(t, server.DSN("postgres"))
		until(t, "its connections were ended", func() bool {
			return value[int](t, admin,
				"SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND query NOT LIKE '%LISTEN%'", t.Name()) == 0
		})
		for try := 0; ; try++ {
			ch, err := p.renew(h)
			if err == nil && ch.State == 0 {
				break
			}
			if !errors.Is(err, driver.ErrUnavailable) || try > 2 {
				t.Fatalf("%s: Renew: %+v, %v", level, ch, err)
			}
		}
		if err := testenv.Repeated(func() error { return p.Release(limited(t), h, 0) }); err != nil {
			t.Errorf("%s: Release: %v", level, err)
		}
	}
}

// Errors distinguish whether something may have been done.
func testErrors(t *testing.T, server *testenv.PostgresServer) {
	proxy := testenv.Proxy(t, server.Addr)
	proxy.Refuse()
	open := func(dsn string) error {
		b := sqllock.New(pool(t, dsn), postgres.Dialect(), nil)
		defer func() { _ = b.Close() }()
		_, err := b.Open(limited(t), driver.SessionConfig{ID: "a", TTL: time.Minute})
		return err
	}
	want(t, open(server.DSNAt("127.0.0.1:1", "postgres")), driver.ErrUnavailable)
	want(t, open(through(t, server, proxy)), driver.ErrUnavailable)
	want(t, open(server.DSN("nobody")), driver.ErrRefused, "nobody")
	run(t, pool(t, server.DSN("postgres")), "CREATE ROLE stranger LOGIN")
	want(t, open(server.DSN("stranger")), driver.ErrRefused, "permission")

	p := join(t, server.DSN("postgres"), time.Minute)
	p.free(p.take(p.mutex("errors")))
	end := blocked(t, pool(t, server.DSN("postgres")), "errors")
	defer end()
	p = join(t, server.DSN("postgres")+"&statement_timeout=900", time.Minute)
	_, err := p.Acquire(limited(t), p.mutex("errors"))
	want(t, err, driver.ErrUncertain, "timeout")
	p = join(t, server.DSN("postgres")+"&lock_timeout=50", time.Minute)
	_, err = p.Acquire(limited(t), p.mutex("errors"))
	want(t, err, driver.ErrUnavailable, "lock timeout")
}
