package sqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// InTx is a server on which a test takes locks in transactions of the application. It has a table
// orders (name, n), in which each test writes what is to appear together with a lock.
type InTx struct {
	Locked

	// Snapshots are the isolation levels at which InTx, after a read, does not see a later change of
	// the row.
	Snapshots map[sql.IsolationLevel]bool

	Session string         // asks for the number of a connection
	Kill    func(id int64) // ends that connection
}

// appTx is a transaction of the application, on a connection of its own.
type appTx struct {
	*sql.Tx
	t    *testing.T
	conn *sql.Conn
}

func (x *InTx) begin(t *testing.T, level sql.IsolationLevel) *appTx {
	t.Helper()
	conn, err := x.Open().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(); _ = conn.Close() })
	return &appTx{tx, t, conn}
}

// kill ends the connection of a.
func (x *InTx) kill(a *appTx) {
	a.t.Helper()
	var id int64
	if err := a.QueryRow(x.Session).Scan(&id); err != nil {
		a.t.Fatal(err)
	}
	x.Kill(id)
}

// order writes a row of the application.
func (a *appTx) order(name string) {
	a.t.Helper()
	if _, err := a.Exec("INSERT INTO orders (name) VALUES ('" + name + "')"); err != nil {
		a.t.Fatalf("the transaction cannot go on: %v", err)
	}
}

func (a *appTx) commit() {
	a.t.Helper()
	if err := a.Commit(); err != nil {
		a.t.Fatalf("commit: %v", err)
	}
}

func (a *appTx) rollback() {
	a.t.Helper()
	if err := a.Rollback(); err != nil {
		a.t.Fatalf("rollback: %v", err)
	}
}

func ticketFor(t *testing.T, c *holdfast.Client, tx any, name string, opts ...holdfast.Option) string {
	t.Helper()
	ticket, err := c.InTx(t.Context(), tx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func refusedWith(t *testing.T, want error) func(any, error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v; want %v", err, want)
		}
	}
}

func resumed(t *testing.T, c *holdfast.Client, ticket string) *holdfast.Lease {
	t.Helper()
	l, err := c.Resume(t.Context(), ticket)
	if err != nil {
		t.Fatalf("Resume: %v", err)
	}
	return l
}

func locked(t *testing.T, c *holdfast.Client, name string) *holdfast.Lease {
	t.Helper()
	l, err := c.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return l
}

func free(t *testing.T, l *holdfast.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// The lock is taken if and only if the transaction is committed, and nobody has it before.
func (x *InTx) CommitAndRollback(t *testing.T) {
	a, b := x.client(t), x.client(t)
	last := uint64(0)
	grew := func(l *holdfast.Lease) {
		t.Helper()
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
	}
	for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead,
		sql.LevelSerializable} {
		for range 2 { // the name is new, and known
			name := fmt.Sprintf("%s/%v", t.Name(), level)
			tx := x.begin(t, level)
			ticket := ticketFor(t, a, tx.Tx, name, holdfast.Note("of an order"))
			refusedWith(t, holdfast.ErrHeld)(a.InTx(t.Context(), tx.Tx, name)) // by this very transaction
			tx.order(name)
			if r, err := b.Inspect(t.Context(), name); err != nil || r.Kind != "" {
				t.Errorf("before the commit: %+v, %v", r, err)
			}
			refusedWith(t, holdfast.ErrGone)(b.Resume(t.Context(), ticket))
			tx.commit()
			if r, err := b.Inspect(t.Context(), name); err != nil || len(r.Holders) != 1 || r.Holders[0].Note != "of an order" {
				t.Errorf("after the commit: %+v, %v", r, err)
			}
			refusedWith(t, holdfast.ErrHeld)(b.Mutex(name).TryLock(t.Context()))
			x.ofNoServer(t)
			l := resumed(t, b, ticket) // another client than the one that took it
			grew(l)
			if left := l.Left(); left <= 0 || left > time.Minute {
				t.Errorf("a resumed lease lasts for %v", left)
			}
			refusedWith(t, holdfast.ErrGone)(a.Resume(t.Context(), ticket))
			free(t, l)

			tx = x.begin(t, level)
			ticket = ticketFor(t, a, tx.Tx, name)
			tx.rollback()
			refusedWith(t, holdfast.ErrGone)(a.Resume(t.Context(), ticket))
			l = locked(t, b, name)
			grew(l)
			refusedWith(t, holdfast.ErrGone)(a.Resume(t.Context(), ticket))
			if err := l.Err(); err != nil {
				t.Error(err)
			}
			free(t, l)
		}
	}
}

// ofNoServer checks that no grant is one of a Server's sessions. A Server gives back a grant that is,
// and that none of its sessions wants, when a notification names it. Some people can forge those.
func (x *InTx) ofNoServer(t *testing.T) {
	t.Helper()
	var n int
	err := x.Open().QueryRow("SELECT COUNT(*) FROM hf_lock WHERE hid <> '' AND hsession LIKE '%.%'").Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("%d grants that nobody has resumed belong to a session, %v", n, err)
	}
}

// A client that crashes before the commit has nothing; after it, the name is held until the lease has
// expired.
func (x *InTx) Crashes(t *testing.T) {
	a, b := x.client(t), x.client(t)
	name := t.Name()
	tx := x.begin(t, sql.LevelDefault)
	ticket := ticketFor(t, a, tx.Tx, name)
	x.kill(tx)
	before := locked(t, b, name)
	refusedWith(t, holdfast.ErrGone)(a.Resume(t.Context(), ticket))
	free(t, before)

	tx = x.begin(t, sql.LevelDefault)
	ticketFor(t, a, tx.Tx, name)
	tx.commit()
	refusedWith(t, holdfast.ErrHeld)(b.Mutex(name).TryLock(t.Context()))
	expire(t, x.Open(), name)
	after := locked(t, b, name)
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	free(t, after)
}

// The lease counts from InTx: a transaction that is open for longer commits an expired grant.
func (x *InTx) LongTransaction(t *testing.T) {
	a, b := x.client(t), x.client(t)
	name := t.Name()
	tx := x.begin(t, sql.LevelDefault)
	ticket := ticketFor(t, a, tx.Tx, name)
	expire(t, tx.Tx, name)
	tx.commit()
	refusedWith(t, holdfast.ErrGone)(a.Resume(t.Context(), ticket))
	l, err := b.Mutex(name).TryLock(t.Context())
	if err != nil {
		t.Fatalf("an expired grant is in the way: %v", err)
	}
	refusedWith(t, holdfast.ErrGone)(a.Resume(t.Context(), ticket))
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	free(t, l)
}

// Of ten clients at once, one takes the lock. None of them waits: all have answered before the first
// commit.
func (x *InTx) TenAtOnce(t *testing.T) {
	for round := range 3 {
		name := fmt.Sprint(t.Name(), "/", round%2) // a new name, and a known one
		var clients []*holdfast.Client
		var txs []*appTx
		for range 10 {
			clients, txs = append(clients, x.client(t)), append(txs, x.begin(t, sql.LevelDefault))
		}
		tickets, errs := make([]string, 10), make([]error, 10)
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() { tickets[i], errs[i] = clients[i].InTx(t.Context(), txs[i].Tx, name) })
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Errorf("round %d: %d and %d have the lock", round, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, holdfast.ErrRetry):
				t.Errorf("round %d, client %d: %v", round, i, err)
			}
			txs[i].order(name) // it can go on in any case
			txs[i].commit()
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody has the lock: %v", round, errs)
		}
		free(t, resumed(t, clients[winner], tickets[winner]))
	}
}
