package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// locked runs a foreign transaction that locks the row of a name; end ends it.
func locked(t *testing.T, db *sql.DB, name string) (end func()) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var n int
	if err := tx.QueryRow("SELECT 1 FROM hf_lock WHERE name = ? FOR UPDATE", []byte(name)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// blocked waits until n statements wait for a row.
func blocked(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " statements wait for a row"),
		func() bool { return status(t, db, "Innodb_row_lock_current_waits") >= n })
}

// status returns one of the server's counters.
func status(t *testing.T, db *sql.DB, name string) int {
	t.Helper()
	return value[int](t, db, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = ?", name)
}

// A row locked for longer than the server's limit (1205) is an ordinary result: nothing was done,
// the statement is repeated, and takes effect once.
func TestRowLocked(t *testing.T) {
	t.Parallel()
	server := maria(t, "--innodb-lock-wait-timeout=1")
	admin := pool(t, server.DSN("root", ""))
	a, b := join(t, server.DSN("root", ""), time.Minute), join(t, server.DSN("root", ""), time.Minute)
	h := a.get(a.req("x"))
	shared := a.get(a.shared("rw"))
	r := b.req("x")
	for _, c := range []struct {
		what, name string
		do         func() error
	}{
		{"Acquire", "x", func() error {
			rep, err := b.Acquire(t.Context(), r)
			if err == nil && (rep.Token != 0 || rep.Ahead != 0) {
				err = fmt.Errorf("%+v", rep)
			}
			return err
		}},
		{"Release", "rw", func() error { return a.Release(t.Context(), shared, 0) }},
	} {
		eventually(t, c.what+" has the row before its time is over", func() bool {
			end := locked(t, admin, c.name)
			done := make(chan error, 1)
			go func() { done <- c.do() }()
			blocked(t, admin, 1)
			// The second attempt is in progress when the row is free again.
			first := status(t, admin, "Innodb_row_lock_waits")
			eventually(t, "the statement was given up", func() bool { return status(t, admin, "Innodb_row_lock_waits") > first })
			end()
			err := <-done
			if err != nil && !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%s: %v", c.what, err)
			}
			return !errors.Is(err, driver.ErrUnavailable)
		})
	}
	// One renewal waits for the row, and another follows.
	end := locked(t, admin, h.Name)
	if _, err := a.Renew(t.Context(), []driver.Hold{h}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Renew with a locked row: %v; want ErrUnavailable", err)
	}
	end()
	if ch := a.renew(h); ch.State != 0 {
		t.Errorf("Renew after the row is free again: %+v", ch)
	}
	if rec := a.inspect("x"); len(rec.Holders) != 1 || rec.Waiting != 1 {
		t.Errorf("x: %+v; want one holder and one place", rec)
	}
	if rec := a.inspect("rw"); rec.Kind != driver.Unused {
		t.Errorf("rw: %+v", rec)
	}

	// A call without enough time returns that nothing was done, or that the result is unknown.
	defer locked(t, admin, "x")()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := a.Release(ctx, h, 0); !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release with a context of 300 ms: %v", err)
	}
}

// A deadlock (1213) with a foreign transaction that locks in another order does not reach the
// caller.
func TestDeadlockRetried(t *testing.T) {
	t.Parallel()
	server := maria(t, "--innodb-lock-wait-timeout=20")
	admin := pool(t, server.DSN("root", ""))
	a := join(t, server.DSN("root", ""), time.Minute)
	holds := []driver.Hold{a.get(a.req("a")), a.get(a.req("b"))}
	// The foreign transaction has changed much, so the server rolls back the other one.
	run(t, admin, "CREATE TABLE foreign_work (n INT PRIMARY KEY) ENGINE=InnoDB")
	// A renewal waits for a row for a second only, and there is no deadlock if the transaction is slower.
	eventually(t, "a deadlock", func() bool {
		tx, err := admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		for _, s := range []string{"INSERT INTO foreign_work SELECT seq FROM seq_1_to_5000",
			"UPDATE hf_lock SET ver = ver WHERE name = 'b' LIMIT 1", "SELECT 1 FROM hf_lock WHERE name = 'b' FOR UPDATE"} {
			if _, err := tx.Exec(s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
		done := make(chan error, 1)
		go func() {
			changes, err := a.Renew(t.Context(), holds)
			if err == nil && len(changes) > 0 {
				err = fmt.Errorf("%+v", changes)
			}
			done <- err
		}()
		blocked(t, admin, 1)
		if _, err := tx.Exec("SELECT 1 FROM hf_lock WHERE name = 'a' FOR UPDATE"); err != nil {
			t.Fatalf("the foreign transaction was rolled back: %v", err)
		}
		happened := status(t, admin, "Innodb_deadlocks") > 0
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil && happened {
			t.Errorf("Renew: %v", err)
		}
		return happened
	})
}

// A statement that waited for its row for longer than the lease lasts yields no valid lease.
func TestStatementLongerThanTheLease(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	dsn := server.DSN("root", "")
	const short = 300 * time.Millisecond
	early, next := join(t, dsn, short), join(t, dsn, time.Minute)
	next.release(next.get(next.req("x"))) // creates the row

	// Taken late. A statement that has waited for a second is given up, and its repetition is younger.
	var lapsed driver.Hold
	eventually(t, "the statement was not given up", func() bool {
		end := locked(t, admin, "x")
		late := early.req("x")
		var rep driver.Reply
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			var err error
			rep, err = early.acquired(late)
			done <- err
		}()
		blocked(t, admin, 1)
		time.Sleep(2 * short) // the statement is that old now
		end()
		err := <-done
		took := time.Since(began)
		if err != nil || rep.Token == 0 {
			t.Fatalf("Acquire = %+v, %v", rep, err)
		}
		if lapsed = hold(late, rep.Token); took < sqllock.RowWait {
			return true
		}
		r := next.req("x")
		next.release(next.served(r, next.ask(r)))
		return false
	})
	h := next.get(once(next.req("x")))
	if h.Token <= lapsed.Token {
		t.Errorf("token %d after %d", h.Token, lapsed.Token)
	}
	if ch := early.renew(lapsed); ch.State != driver.Gone {
		t.Errorf("Renew of a lease that ended before it was granted = %+v", ch)
	}
	next.release(h)

	c := user(t, pool(t, dsn), short)
	lease := locks(t, c, "x")

	// Renewed late, after the lease has expired: the holder was notified, and the next one gets the
	// lock.
	end := locked(t, admin, "x")
	select {
	case <-lease.Done():
	case <-time.After(patient):
		t.Fatal("the holder was not notified")
	}
	end()
	r := next.req("x")
	h = next.served(r, next.ask(r))
	if h.Token <= lease.Token() {
		t.Errorf("token %d after %d", h.Token, lease.Token())
	}
	if err := lease.Release(); err == nil {
		t.Error("Release of a lost lease reports nothing")
	}
	if ch := next.renew(h); ch.State != 0 {
		t.Errorf("the next holder's Renew = %+v", ch)
	}
}

// Rows that a process has locked are free soon after it is cut off, at any point of its work. The
// application gets its pool's connections back unchanged.
func TestCutOffInATransaction(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	proxy := testenv.Proxy(t, server.Addr)
	cut := join(t, strings.Replace(server.DSN("root", ""), server.Addr, proxy.Addr, 1), time.Minute)
	other := join(t, server.DSN("root", ""), time.Minute)
	if err := testenv.Repeated(func() error { _, err := cut.SetCount(t.Context(), "latch", 3); return err }); err != nil {
		t.Fatal(err)
	}
	count := func(by *client, id string, want int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		var left int64
		if err := testenv.Repeated(func() (err error) {
			left, err = by.CountDown(ctx, "latch", id)
			return err
		}); left != want || err != nil {
			t.Errorf("CountDown: %d, %v; want %d", left, err, want)
		}
	}
	end := locked(t, admin, "latch")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		_, err := cut.CountDown(ctx, "latch", "a")
		asked <- err
	}()
	blocked(t, admin, 1)
	proxy.Hole()
	end()                // now the cut-off client has the row
	count(other, "b", 2) // an uncommitted count does not count
	cancel()
	if err := <-asked; !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("the call through the hole: %v", err)
	}

	proxy.Heal()
	want := value[int](t, admin, "SELECT @@wait_timeout")
	count(cut, "a", 1)
	for range 3 { // as many as the pool has
		c, err := cut.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		var got int
		if err := c.QueryRowContext(t.Context(), "SELECT @@wait_timeout").Scan(&got); err != nil || got != want || got < 60 {
			t.Errorf("a connection of the pool has wait_timeout=%d, %v; want %d", got, err, want)
		}
	}
}

// Many shared grants of one session are renewed in one statement, and those of others are not. A
// row that changes meanwhile is renewed too.
func TestRenewalOfMany(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	a, b := join(t, server.DSN("root", ""), time.Minute), join(t, server.DSN("root", ""), time.Minute)
	var holds []driver.Hold
	for i := range 40 {
		holds = append(holds, a.get(a.shared(fmt.Sprint("many/", i))))
	}
	foreign := b.get(b.shared("many/7"))
	left := map[string]time.Duration{}
	look := func() bool {
		for _, h := range a.inspect("many/7").Holders {
			left[h.ID] = h.Left
		}
		return left[foreign.ID] < time.Minute-100*time.Millisecond
	}
	eventually(t, "some time has passed", look)
	before := status(t, admin, "Com_update")
	if changes, err := a.Renew(t.Context(), holds); err != nil || len(changes) > 0 {
		t.Fatalf("Renew: %+v, %v", changes, err)
	}
	if n := status(t, admin, "Com_update") + status(t, admin, "Com_update_multi") - before; n > 2 {
		t.Errorf("%d statements for 40 renewals", n)
	}
	if look(); left[holds[7].ID] < left[foreign.ID]+100*time.Millisecond {
		t.Errorf("%v are left of the lease, and %v of another's", left[holds[7].ID], left[foreign.ID])
	}

	end := locked(t, admin, "many/3")
	done := make(chan error, 1)
	go func() { _, err := a.Renew(t.Context(), holds); done <- err }()
	blocked(t, admin, 1)
	if _, err := admin.ExecContext(t.Context(), "UPDATE hf_lock SET ver = ver + 1 WHERE name = 'many/30'"); err != nil {
		t.Error(err)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
