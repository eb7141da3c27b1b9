package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// A waiter may ask again and be granted the lock before its notification arrives. The late
// notification must not be mistaken for one of an abandoned request.
func testNewsOfWhatIsHeldAlready(t *testing.T, server *testenv.PostgresServer) {
	dsn := named(t, server)
	a := join(t, dsn, time.Minute)
	proxy := testenv.Proxy(t, server.Addr)
	backendB, db := backend(t, dsn, &sqllock.Config{Listen: pool(t, through(t, server, proxy))})
	b := session(t, backendB, db, time.Minute)
	x, y := a.take(a.mutex("late/x")), a.take(a.mutex("late/y"))
	forX, forY := b.mutex("late/x"), b.mutex("late/y")
	b.queue(forX)
	wakeY := b.queue(forY)
	proxy.Delay(300 * time.Millisecond)
	a.free(x)
	held := b.take(forX)
	a.free(y)
	b.woken(forY, wakeY) // so the earlier notification of x has arrived too
	for range 100 {
		if ch, err := b.renew(held); err != nil || ch.State != 0 {
			t.Fatalf("the holder's renewal: %+v, %v", ch, err)
		}
		once := a.mutex("late/x")
		once.Wait = false
		if rep := a.ask(once); rep.Token != 0 {
			t.Fatal("granted to another, while its holder goes on")
		}
	}
}

// A grant to an abandoned request does not stay until it expires, if its Server is notified. The
// same holds within one process, where nothing is sent.
func testNewsOfWhatWasGivenUp(t *testing.T, server *testenv.PostgresServer) {
	dsn := named(t, server)
	b := join(t, dsn, time.Minute)
	for what, others := range map[string]*party{"processes": join(t, dsn, time.Minute),
		"sessions": session(t, b.b, b.db, time.Minute)} {
		for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
			first := others.mutex("given/" + what)
			first.Mode = mode
			held := others.take(first)
			given := b.mutex(first.Name)
			b.queue(given)
			next := others.mutex(first.Name)
			wake := others.queue(next)
			// b forgets the request, and the server does not: the Cancel fails.
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := b.Cancel(ctx, first.Name, given.ID); err == nil {
				t.Fatal("a Cancel with an ended context was answered")
			}
			others.free(held)
			others.free(others.woken(next, wake))
		}
	}
}

// An answer counts only after its transaction's commit, not when its row has arrived.
func testCommitThatFails(t *testing.T, server *testenv.PostgresServer) {
	dsn := named(t, server)
	admin := pool(t, dsn)
	p, q := join(t, dsn, time.Minute), join(t, dsn, time.Minute)
	held := p.take(p.mutex("fails/held"))
	run(t, admin,
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'at the end'; END $$`,
		`CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON hf_lock DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (substring(NEW.name from 1 for 6) = 'fails/') EXECUTE FUNCTION fail()`)
	if rep, err := p.Acquire(limited(t), p.mutex("fails/x")); err == nil {
		t.Errorf("Acquire: %+v", rep)
	}
	if rep, err := q.Acquire(limited(t), q.mutex("fails/held")); err == nil {
		t.Errorf("Acquire of a place: %+v", rep)
	}
	if ch, err := p.renew(held); err == nil {
		t.Errorf("Renew: %+v", ch)
	}
	if err := p.Release(limited(t), held, 0); err == nil {
		t.Error("Release succeeded")
	}
	run(t, admin, "DROP TRIGGER late ON hf_lock")
	if ch, err := p.renew(held); err != nil || ch.State != 0 {
		t.Errorf("Renew, after the failures: %+v, %v", ch, err)
	}
}

// blocked locks the row of a name with another transaction, until the returned function ends that.
func blocked(t testing.TB, db *sql.DB, name string) (end func()) {
	t.Helper()
	tx, err := db.BeginTx(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var one int
	if err := tx.QueryRow("SELECT 1 FROM hf_lock WHERE name = $1 FOR UPDATE", []byte(name)).Scan(&one); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
}

// stuck waits until n statements wait for a lock of the server.
func stuck(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	until(t, "statements wait for a row", func() bool {
		return value[int](t, db,
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1", t.Name()) >= n
	})
}

// A request during Close leaves nothing behind.
func testCloseWhileAcquireWaits(t *testing.T, server *testenv.PostgresServer) {
	dsn := named(t, server)
	admin := pool(t, dsn)
	p, q := join(t, dsn, time.Hour), join(t, dsn, time.Hour)
	p.free(p.take(p.mutex("closing/x")))
	end := blocked(t, admin, "closing/x")
	answered := make(chan error, 1)
	go func() {
		_, err := p.Acquire(limited(t), p.mutex("closing/x"))
		answered <- err
	}()
	stuck(t, admin, 1)
	// Close must not wait for a statement that waits for others.
	closed := make(chan error, 1)
	go func() { closed <- p.Close(limited(t)) }()
	until(t, "the session is closed", func() bool {
		_, err := p.Renew(context.Background(), nil)
		return errors.Is(err, driver.ErrClosed)
	})
	end()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("Acquire of a closed session was granted")
	}
	until(t, "the name is free", func() bool {
		once := q.mutex("closing/x")
		once.Wait = false
		return q.ask(once).Token != 0
	})
}

// The same at any moment.
func testCloseDuringAcquire(t *testing.T, server *testenv.PostgresServer) {
	b, db := backend(t, named(t, server), nil)
	other := session(t, b, db, time.Hour)
	for round := range testenv.Rounds(50, 200) {
		p := session(t, b, db, time.Hour)
		r := p.mutex("closing/race")
		r.Wait = round%2 == 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.Acquire(limited(t), r)
		}()
		if err := p.Close(limited(t)); err != nil {
			t.Fatal(err)
		}
		<-done
		other.free(other.take(other.mutex("closing/race")))
	}
}

// A statement may wait for its row longer than its lease lasts. The lease is over when the answer
// arrives, and all clients see that.
func testRowHeldForLongerThanALease(t *testing.T, server *testenv.PostgresServer) {
	dsn := named(t, server)
	admin := pool(t, dsn)
	const short = 300 * time.Millisecond
	for name, first := range map[string]func(p *party) error{
		"take": func(p *party) error { _, err := p.Acquire(limited(t), p.mutex("take")); return err },
		"read": func(p *party) error { _, err := p.Acquire(limited(t), p.shared("read")); return err },
	} {
		p, q := join(t, dsn, short), join(t, dsn, time.Minute)
		q.free(q.take(q.mutex(name)))
		end := blocked(t, admin, name)
		done := make(chan error, 1)
		go func() { done <- first(p) }()
		stuck(t, admin, 1)
		time.Sleep(2 * short)
		end()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// The lease lasts at most a TTL from when the request was sent, so nobody waits longer.
		var token uint64
		until(t, "another has it", func() bool {
			r := q.mutex(name)
			r.Wait = false
			token = q.ask(r).Token
			return token != 0
		})
		if last := value[int64](t, admin, "SELECT token FROM hf_lock WHERE name = $1", []byte(name)); last != int64(token) {
			t.Errorf("%s: token %d, and %d in the row", name, token, last)
		}
	}
	// A lease that expires while its renewal waits: the renewal's result is true in any case.
	p, q := join(t, dsn, short), join(t, dsn, time.Minute)
	held := p.take(p.mutex("renewed"))
	end := blocked(t, admin, "renewed")
	type answer struct {
		ch  driver.Change
		err error
	}
	done := make(chan answer, 1)
	go func() { ch, err := p.renew(held); done <- answer{ch, err} }()
	stuck(t, admin, 1)
	time.Sleep(2 * short)
	end()
	// A statement that has waited for a second is given up, and the lease is not renewed then.
	if a := <-done; a.err != nil && !errors.Is(a.err, driver.ErrUnavailable) {
		t.Errorf("Renew: %v", a.err)
	}
	r := q.mutex("renewed")
	q.ask(r)
	until(t, "another has it", func() bool { return q.ask(r).Token > held.Token })
	if ch, err := p.renew(held); err != nil || ch.State != driver.Gone {
		t.Errorf("Renew of another's lock: %+v, %v", ch, err)
	}
}

// Rows that a process has locked are free soon after it is cut off, at any point of its work.
func testCutOffInATransaction(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	for what, level := range map[string]string{"counts": "", "everything": "&default_transaction_isolation=serializable"} {
		t.Run(what, func(t *testing.T) {
			proxy := testenv.Proxy(t, server.Addr)
			cut := join(t, through(t, server, proxy)+level, time.Minute)
			other := join(t, server.DSN("postgres"), time.Minute)
			held := cut.take(cut.mutex(what + "/held"))
			if err := testenv.Repeated(func() error {
				_, err := cut.SetCount(limited(t), what+"/latch", 2)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			ask, cancel := context.WithCancel(limited(t))
			asked := make(chan error, 1)
			locked := what + "/latch"
			call := func() error { _, err := cut.CountDown(ask, locked, "a"); return err }
			if level != "" {
				locked = held.Name
				call = func() error { _, err := cut.Renew(ask, []driver.Hold{held}); return err }
			}
			end := blocked(t, admin, locked)
			go func() { asked <- call() }()
			stuck(t, admin, 1)
			proxy.Hole()
			end() // now the cut-off client has the row
			var left int64
			if level != "" {
				other.queue(other.mutex(locked))
			} else if err := testenv.Repeated(func() (err error) {
				left, err = other.CountDown(limited(t), locked, "b")
				return err
			}); left != 1 || err != nil {
				t.Errorf("CountDown of 2: %d, %v; an uncommitted count does not count", left, err)
			}
			cancel()
			if err := <-asked; !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("the call through the hole: %v", err)
			}
		})
	}
}
