package postgres_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// A crash may lose a release, so that does not wait for the disk. It must not lose a grant or a
// renewal: those wait, whatever the server, the role or the URL have set. A trigger records the
// setting at each write of a row.
func testWhatWaitsForTheDisk(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	run(t, admin, "CREATE TABLE writes (n serial, name bytea, sync text)",
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO writes (name, sync) VALUES (NEW.name, current_setting('synchronous_commit')); RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER noting AFTER INSERT OR UPDATE ON hf_lock DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (substring(NEW.name from 1 for 5) = 'disk/') EXECUTE FUNCTION note()`)
	for _, set := range []string{"on", "off", "local"} {
		kept := set // a setting that waits is not changed
		if set == "off" {
			kept = "on"
		}
		for _, isolation := range []string{"read%20committed", "serializable"} {
			dsn := server.DSN("postgres") + "&synchronous_commit=" + set + "&default_transaction_isolation=" + isolation
			a, b := join(t, dsn, time.Minute), join(t, dsn, time.Minute)
			name := func(s string) string { return fmt.Sprintf("disk/%s/%s/%s", set, isolation, s) }
			written := func(what, name, want string) {
				t.Helper()
				got := value[string](t, admin,
					"SELECT coalesce(string_agg(DISTINCT sync, ' '), 'nothing') FROM writes WHERE name = $1", []byte(name))
				if got != want {
					t.Errorf("synchronous_commit=%s, %s: %s with %s; want %s", set, isolation, what, got, want)
				}
				run(t, admin, "DELETE FROM writes")
			}
			held := a.take(a.mutex(name("m")))
			written("take of a new name", name("m"), kept)
			r := b.mutex(name("m"))
			wake := b.queue(r)
			written("joining the queue", name("m"), kept)
			if _, err := a.renew(held); err != nil {
				t.Error(err)
			}
			written("renewal", name("m"), kept)
			if _, err := b.renew(driver.Hold{Name: r.Name, ID: r.ID}); err != nil {
				t.Error(err)
			}
			written("renewal of a place", name("m"), kept)
			a.free(held)
			written("hand-over", name("m"), "off")
			b.free(b.woken(r, wake))
			written("release", name("m"), "off")
			held = a.take(a.mutex(name("m")))
			written("take", name("m"), kept)
			if err := a.b.Break(limited(t), name("m"), held.Token); err != nil {
				t.Error(err)
			}
			written("break", name("m"), kept)
			reader := a.take(a.shared(name("r")))
			written("a reader's grant", name("r"), kept)
			second := b.take(b.shared(name("r")))
			written("a second reader's grant", name("r"), kept)
			if _, err := a.renew(reader); err != nil {
				t.Error(err)
			}
			written("a reader's renewal", name("r"), kept)
			a.free(reader)
			b.free(second)
			run(t, admin, "DELETE FROM writes")
			if err := testenv.Repeated(func() error { _, err := a.SetCount(limited(t), name("l"), 2); return err }); err != nil {
				t.Error(err)
			}
			written("a latch", name("l"), kept)
			for _, id := range []string{"one", "two"} {
				if err := testenv.Repeated(func() error {
					_, err := a.CountDown(limited(t), name("l"), id)
					return err
				}); err != nil {
					t.Error(err)
				}
				written("a count", name("l"), kept)
			}
		}
	}
}

// The most frequent operations are one statement, with every driver and behind poolers.
func testOneStatementEach(t *testing.T, server *testenv.PostgresServer) {
	for _, kind := range []string{"pgx", "foreign"} {
		db, err := sql.Open(kind, named(t, server))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(3)
		b := sqllock.New(db, postgres.Dialect(), nil)
		t.Cleanup(func() { _ = b.Close() })
		p, q := session(t, b, db, time.Hour), join(t, server.DSN("postgres"), time.Hour)
		admin := pool(t, server.DSN("postgres"))
		last := func(what, text string) {
			t.Helper()
			// A client that cannot listen polls, also just after an answer. Others begin to listen when a request
			// waits.
			got := value[string](t, admin, "SELECT query FROM pg_stat_activity WHERE application_name = $1"+
				" AND query NOT LIKE 'SELECT name, kind, counter, token%' AND query NOT LIKE '%LISTEN hf_%'"+
				" AND query NOT LIKE 'SELECT encode(secret%' ORDER BY query_start DESC LIMIT 1", t.Name())
			if !strings.HasPrefix(strings.TrimSpace(got), text) {
				t.Errorf("%s: %s ended with %q; want %q", kind, what, got, text)
			}
		}
		name := kind + "/one statement"
		held := p.take(p.mutex(name))
		last("take", "INSERT INTO hf_lock AS l")
		more := p.take(p.mutex(name + "/2"))
		if changes, err := p.Renew(limited(t), []driver.Hold{held, more}); err != nil || len(changes) > 0 {
			t.Errorf("Renew: %+v, %v", changes, err)
		}
		last("renewal", "SELECT set_config('enable_seqscan'")
		behind := q.mutex(name)
		wake := q.queue(behind)
		p.free(held)
		last("hand-over", "WITH ended")
		mine := p.mutex(name)
		p.queue(mine)
		if kind == "pgx" { // others poll now
			last("joining the queue", "INSERT INTO hf_lock AS l")
		}
		if err := p.Cancel(limited(t), name, mine.ID); err != nil {
			t.Error(err)
		}
		last("leaving the queue", "UPDATE hf_lock AS l SET\n\tver")
		q.free(q.woken(behind, wake))
		p.free(more)
		last("release", "WITH ended")
		if err := p.Session.Close(limited(t)); err != nil {
			t.Error(err)
		}
		_ = b.Close()
		_ = db.Close()
	}
}

// Reading writes nothing.
func testLookingWritesNothing(t *testing.T, server *testenv.PostgresServer) {
	p, q := join(t, named(t, server), time.Minute), join(t, named(t, server), time.Minute)
	const name = "looking"
	ver := func() int64 { return value[int64](t, p.db, "SELECT ver FROM hf_lock WHERE name = $1", []byte(name)) }
	look := func(what string) {
		t.Helper()
		before := ver()
		if _, err := q.b.Inspect(limited(t), name); err != nil {
			t.Error(err)
		}
		if _, err := q.b.List(limited(t), name, "", 10); err != nil {
			t.Error(err)
		}
		once := q.mutex(name)
		once.Wait = false
		if what != "free" {
			_, _ = q.Acquire(limited(t), once) // one reason: in use as another kind
		}
		if after := ver(); after != before {
			t.Errorf("%s: reading has written %d times", what, after-before)
		}
	}
	held := p.take(p.mutex(name))
	look("held")
	p.free(held)
	look("free")
	reader := p.take(p.shared(name))
	look("read")
	p.free(reader)
	look("free")
	permits := p.take(p.permits(name, 3, 3))
	look("a semaphore")
	p.free(permits)
	look("free")
}
