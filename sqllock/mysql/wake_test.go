package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// fallback is the least delay after a lost wake-up: half of a bell's sleep.
const fallback = 500 * time.Millisecond

// turns passes one name round among clients n times, and returns the duration of each hand-over.
func turns(t *testing.T, name string, n int, clients ...*client) []time.Duration {
	t.Helper()
	var took []time.Duration
	h := clients[0].get(clients[0].req(name))
	reqs, replies := make([]*driver.Request, len(clients)), make([]driver.Reply, len(clients))
	for i, c := range clients[1:] {
		reqs[i+1] = c.req(name)
		replies[i+1] = c.refused(reqs[i+1])
	}
	at := 0
	for range n {
		next := (at + 1) % len(clients)
		began := time.Now()
		clients[at].release(h)
		last := h.Token
		h = clients[next].served(reqs[next], replies[next])
		took = append(took, time.Since(began))
		if h.Token <= last {
			t.Fatalf("token %d after %d", h.Token, last)
		}
		reqs[at] = clients[at].req(name)
		replies[at] = clients[at].refused(reqs[at])
		at = next
	}
	clients[at].release(h)
	for i, c := range clients {
		if i != at {
			if err := c.Cancel(c.ctx, name, reqs[i].ID); err != nil {
				t.Fatalf("Cancel: %v", err)
			}
		}
	}
	return took
}

// lostOf counts the hand-overs that a lost wake-up can explain.
func lostOf(took []time.Duration) (n int) {
	for _, d := range took {
		if d > fallback {
			n++
		}
	}
	return n
}

// wakes fails the test unless wake-ups reach waiters: the quickest hand-over took less than a
// waiter's own look. A slow machine delays some hand-overs, but not all.
func wakes(t *testing.T, what string, took ...time.Duration) {
	t.Helper()
	if quickest := slices.Min(took); quickest > fallback {
		t.Errorf("%s: the quickest of %d hand-overs took %v: nobody was woken", what, len(took), quickest)
	}
}

// Consecutive hand-overs between processes reach the next waiter at once.
func TestTimedWoken(t *testing.T) {
	server := maria(t)
	var clients []*client
	for range 3 {
		clients = append(clients, joinByServer(t, server.DSN("root", ""), time.Minute))
	}
	took := turns(t, "x", testenv.Rounds(200, 700), clients...)
	if n := lostOf(took); n > len(took)/100 {
		t.Errorf("%d of %d wake-ups were lost", n, len(took))
	}
}

// A user needs only these rights to wake and be woken. Two users that may not stop each other's
// statements wait for the next look.
func TestUsers(t *testing.T) {
	server := maria(t)
	grant(server, "one", "hf_meta", "hf_lock", "hf_done", "hf_bell")
	grant(server, "other", "hf_meta", "hf_lock", "hf_done", "hf_bell")
	a, b := joinByServer(t, server.DSN("one", ""), time.Minute), joinByServer(t, server.DSN("one", ""), time.Minute)
	wakes(t, "the same user", turns(t, "same user", 20, a, b)...)
	c := joinByServer(t, server.DSN("other", ""), time.Minute)
	for _, x := range []*client{a, b, c} {
		if why := x.b.Polling(); why != "" {
			t.Errorf("waiters poll: %s", why)
		}
	}
	turns(t, "another user", 3, a, c)
}

// grant creates a user with rights on these tables only.
func grant(server *testenv.MariaDBServer, user string, tables ...string) {
	statements := []string{"CREATE USER " + user + "@'127.0.0.1'"}
	for _, table := range tables {
		statements = append(statements, "GRANT SELECT, INSERT, UPDATE, DELETE ON test."+table+" TO "+user+"@'127.0.0.1'")
	}
	server.Exec(statements...)
}

// bellOf returns the ID of the connection that wakes a client's waiters; 0: there is none.
func bellOf(t *testing.T, c *client) int64 {
	t.Helper()
	return value[int64](t, c.db,
		"SELECT COALESCE(MAX(p.id), 0) FROM information_schema.processlist AS p JOIN hf_bell AS b ON b.conn = p.id "+
			"JOIN hf_lock AS l ON INSTR(l.line, CONCAT(b.server, '.', ?)) > 0", c.id)
}

// A bell whose connection ends gets another, and others that knew the old one find it.
func TestBellKilled(t *testing.T) {
	server := maria(t)
	a, b := joinByServer(t, server.DSN("root", ""), time.Minute), joinByServer(t, server.DSN("root", ""), time.Minute)
	admin := pool(t, server.DSN("root", ""))
	var took []time.Duration
	for range 5 { // from the second on, its address is known before
		h := a.get(a.req("x"))
		r := b.req("x")
		rep := b.refused(r)
		var before int64
		eventually(t, "its bell has a connection", func() bool { before = bellOf(t, b); return before != 0 })
		if _, err := admin.Exec("KILL CONNECTION ?", before); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another connection is a bell", func() bool {
			var now int64
			err := admin.QueryRow(
				"SELECT COALESCE(MAX(b.conn), 0) FROM hf_bell AS b JOIN information_schema.processlist AS p ON p.id = b.conn " +
					"JOIN hf_lock AS l ON INSTR(l.line, b.server) > 0").Scan(&now)
			return err == nil && now != 0 && now != before
		})
		began := time.Now()
		a.release(h)
		b.release(b.served(r, rep))
		took = append(took, time.Since(began))
	}
	wakes(t, "just after the bell was killed", took[1:]...)
	wakes(t, "later", turns(t, "y", 20, a, b)...)
}

// The application's connections are never interrupted: not after a restart of the server, with
// addresses of its earlier run, nor after a bell's connection was given up.
func TestBystanders(t *testing.T) {
	server := maria(t)
	dsn := server.DSN("root", "")
	var ran atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for range 6 {
		db := pool(t, dsn)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var n int
				err := db.QueryRowContext(context.Background(), "SELECT SLEEP(0.002)").Scan(&n)
				var said *mysqldriver.MySQLError
				if errors.As(err, &said) && said.Number == 1317 || err == nil && n != 0 {
					t.Errorf("a query of the application's was interrupted: %d, %v", n, err)
					return
				}
				ran.Add(1)
			}
		})
	}
	proxy := testenv.Proxy(t, server.Addr)
	for restarted := range 2 {
		a, b := joinByServer(t, dsn, time.Minute), joinByServer(t, dsn, time.Minute)
		turns(t, "x", testenv.Rounds(60, 300), a, b)
		if restarted == 1 {
			break
		}
		// A waiter's address is still that of the earlier run, and belongs to the application now.
		h := a.get(a.req("y"))
		far := joinByServer(t, server.DSNAt(proxy.Addr, "root", ""), time.Minute)
		far.refused(far.req("y"))
		r := b.req("y")
		rep := b.refused(r)
		eventually(t, "the address is on record", func() bool {
			return value[int](t, a.db, "SELECT COUNT(*) FROM hf_bell WHERE server = ?", serverOfFirst(t, a.db, "y")) == 1
		})
		proxy.Refuse()
		server.Restart(false)
		app, err := a.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the application is connected again", func() bool {
			_ = app.Close()
			app, err = a.db.Conn(t.Context())
			return err == nil && app.PingContext(t.Context()) == nil
		})
		var number int64
		if err := app.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&number); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the address is wrong", func() bool {
			// The row may be lost: the server was killed just after the write.
			res, err := a.db.ExecContext(t.Context(),
				"REPLACE INTO hf_bell (server, host, user, life, conn) SELECT ?, host, user, life - 3600, ? FROM hf_bell LIMIT 1",
				serverOfFirst(t, a.db, "y"), number)
			if err != nil {
				return false
			}
			n, err := res.RowsAffected()
			return err == nil && n >= 1
		})
		keeper, err := pool(t, dsn).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = keeper.Close() }()
		var got sql.NullInt64
		err = keeper.QueryRowContext(t.Context(), "SELECT GET_LOCK('bystander', 0)").Scan(&got)
		if err != nil || got.Int64 != 1 {
			t.Fatalf("GET_LOCK: %v, %v", got, err)
		}
		waited := make(chan error, 1)
		go func() {
			var n sql.NullInt64
			err := app.QueryRowContext(t.Context(), "SELECT GET_LOCK('bystander', 600)").Scan(&n)
			if err == nil && n.Int64 != 1 {
				err = fmt.Errorf("the application was interrupted: %v", n)
			}
			waited <- err
		}()
		eventually(t, "the application waits", func() bool {
			return value[int](t, a.db,
				"SELECT COUNT(*) FROM information_schema.processlist WHERE id = ? AND state = 'User lock'", number) == 1
		})
		eventually(t, "the waking client is connected again", func() bool {
			_, err := a.Renew(a.ctx, []driver.Hold{h})
			return err == nil
		})
		eventually(t, "released", func() bool { return over(a.Release(a.ctx, h, 0)) })
		rec := a.inspect("y")
		if len(rec.Holders) != 1 || rec.Holders[0].ID != far.id+"-1" {
			t.Fatalf("held by %+v; want the client that is cut off", rec.Holders)
		}
		if _, err := keeper.ExecContext(t.Context(), "DO RELEASE_LOCK('bystander')"); err != nil {
			t.Error(err)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
		_ = app.Close()
		if err := a.b.Break(a.ctx, "y", rec.Holders[0].Token); err != nil {
			t.Fatal(err)
		}
		b.release(b.served(r, rep))
		a.close()
		b.close()
	}
	if ran.Load() == 0 {
		t.Error("the application ran no query meanwhile")
	}
}

// serverOfFirst returns the Server of the first waiter.
func serverOfFirst(t *testing.T, db *sql.DB, name string) string {
	t.Helper()
	line := value[string](t, db, "SELECT line FROM hf_lock WHERE name = ?", name)
	_, session, _ := strings.Cut(line, " ")
	server, _, _ := strings.Cut(session, ".")
	return server
}

// A bell's connection is closed at the end, so that nobody interrupts the application's next use of
// it.
func TestBellIsNotHandedBack(t *testing.T) {
	server := maria(t)
	a := joinByServer(t, server.DSN("root", ""), time.Minute)
	h := a.get(a.req("x"))
	for name, end := range map[string]func(b *client){
		"while it waits": func(*client) {},
		"when it has waited": func(b *client) {
			if err := b.Cancel(b.ctx, "x", b.id+"-1"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the bell is idle", func() bool {
				return value[int](t, a.db,
					"SELECT COUNT(*) FROM information_schema.processlist AS p JOIN hf_bell AS l ON l.conn = p.id WHERE p.command <> 'Sleep'") == 0
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, "the address is deleted", func() bool {
				b := joinByServer(t, server.DSN("root", ""), time.Minute)
				b.refused(b.req("x"))
				conn := bellOf(t, b)
				end(b)
				began := time.Now()
				b.close()
				took := time.Since(began)
				eventually(t, "the connection is closed", func() bool {
					return value[int](t, a.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", conn) == 0
				})
				if n := b.db.Stats().InUse; n != 0 {
					t.Errorf("%d connections are in use after Close", n)
				}
				left := value[int](t, a.db, "SELECT COUNT(*) FROM hf_bell WHERE conn = ?", conn)
				if left > 0 && took < time.Second { // Close gives up the deletion after a second
					t.Error("its address still exists")
				}
				return left == 0
			})
		})
	}
	a.release(h)
}

// Addresses of dead processes do no harm, and later processes remove them.
func TestDeadBells(t *testing.T) {
	server := maria(t)
	proxy := testenv.Proxy(t, server.Addr)
	dead := joinByServer(t, server.DSNAt(proxy.Addr, "root", ""), 300*time.Millisecond)
	a := joinByServer(t, server.DSN("root", ""), time.Minute)
	h := a.get(a.req("x"))
	dead.refused(dead.req("x"))
	conn := bellOf(t, dead)
	proxy.Refuse()
	a.release(h) // to the dead client, if its place has not expired
	r := a.req("x")
	a.release(a.served(r, a.ask(r)))
	bells := func() int { return value[int](t, a.db, "SELECT COUNT(*) FROM hf_bell WHERE conn = ?", conn) }
	if bells() != 1 {
		t.Fatal("a process that died has removed its address: this test shows nothing")
	}
	eventually(t, "the server has noticed", func() bool {
		return value[int](t, a.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", conn) == 0
	})
	run(t, a.db, "INSERT INTO hf_bell SELECT 'other', host, 'another@user', life, conn FROM hf_bell WHERE conn = "+
		value[string](t, a.db, "SELECT CAST(? AS CHAR)", conn))
	b := joinByServer(t, server.DSN("root", ""), time.Minute)
	if n := value[int](t, a.db, "SELECT COUNT(*) FROM hf_bell WHERE user <> 'another@user'"); n != 2 {
		t.Errorf("%d addresses; want those of the two live clients", n)
	}
	if n := value[int](t, a.db, "SELECT COUNT(*) FROM hf_bell WHERE user = 'another@user'"); n != 1 {
		t.Error("the address of another user, whose connections are not visible, was removed")
	}
	wakes(t, "with dead bells", turns(t, "y", 20, a, b)...)
}

// After its clock was set, a server seems to have restarted, but its bells are still found.
func TestBellsAfterTheClockWasSet(t *testing.T) {
	server := maria(t)
	a, b := joinByServer(t, server.DSN("root", ""), time.Minute), joinByServer(t, server.DSN("root", ""), time.Minute)
	admin := pool(t, server.DSN("root", ""))
	var took []time.Duration
	for range 10 {
		h := a.get(a.req("x"))
		r := b.req("x")
		rep := b.refused(r)
		eventually(t, "the bell sleeps", func() bool {
			return value[int](t, admin,
				"SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%hf_bell */ IF%' AND state = 'User lock'") == 1
		})
		run(t, admin, "UPDATE hf_bell SET life = life - 3600")
		began := time.Now()
		a.release(h)
		b.release(b.served(r, rep))
		took = append(took, time.Since(began))
	}
	wakes(t, "after the clock was set", took...)
}
