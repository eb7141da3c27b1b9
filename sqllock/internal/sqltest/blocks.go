package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// blocks takes blocks of tokens.
type blocks struct {
	*testing.T
	driver.Session
	id  string
	ids int
}

// ask asks for a lock that takes n tokens.
func (b *blocks) ask(name string, n int) (driver.Hold, driver.Reply) {
	b.Helper()
	b.ids++
	r := &driver.Request{ID: fmt.Sprint(b.id, "-", b.ids), Name: name, Mode: driver.Exclusive, N: 1, Wait: true, Tokens: n}
	rep, err := b.Acquire(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	return driver.Hold{Name: name, ID: r.ID, Token: rep.Token}, rep
}

func (b *blocks) take(name string, n int) driver.Hold {
	b.Helper()
	h, _ := b.ask(name, n)
	if h.Token == 0 {
		b.Fatalf("%s is not free", name)
	}
	return h
}

func (b *blocks) free(h driver.Hold) {
	b.Helper()
	if err := b.Release(b.Context(), h, 0); err != nil {
		b.Fatal(err)
	}
}

// hand queues a request of c that takes n tokens, and releases h, which is b's.
func (b *blocks) hand(h driver.Hold, c *blocks, n int) driver.Hold {
	b.Helper()
	next, rep := c.ask(h.Name, n)
	if rep.Token != 0 {
		b.Fatalf("%s is free", h.Name)
	}
	time.Sleep(2 * time.Millisecond) // use h: its block and the next one are a millisecond of the clock each
	b.free(h)
	select {
	case next.Token = <-rep.Wake:
	case <-time.After(30 * time.Second):
	}
	if next.Token == 0 {
		b.Fatalf("%s was not handed over", h.Name)
	}
	return next
}

// BlocksCostNoStatement counts the statements of grants that take one token, and of those that take
// the most. They must be the same.
func BlocksCostNoStatement(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) {
	counts := map[string]map[int]int{}
	for _, n := range []int{1, driver.MaxTokens} {
		name := fmt.Sprint("counted/", n)
		db := OpenBreaking(t, admin, dsn)
		// A Server for each, since names may share what a dialect remembers of them.
		s := sqllock.New(db.DB, dialect(), &sqllock.Config{Listen: listens(dialect(), admin)})
		defer func() { _ = s.Close() }()
		id := fmt.Sprint("counted", n)
		b := &blocks{T: t, Session: open(t, s, id), id: id}
		defer func() { _ = b.Close(context.Background()) }()
		count := func(what string, do func()) {
			db.Sent()
			do()
			var heads []string
			for _, text := range db.Sent() {
				if !strings.HasPrefix(text, "SELECT name, kind, counter, token") { // a look at waiters comes at any time
					heads = append(heads, text[:min(len(text), 70)])
				}
			}
			t.Logf("%s with %d tokens: %d statements: %q", what, n, len(heads), heads)
			if counts[what] == nil {
				counts[what] = map[int]int{}
			}
			counts[what][n] = len(heads)
		}
		count("the first pair", func() { b.free(b.take(name, n)) })
		count("a pair", func() { b.free(b.take(name, n)) })
		h := b.hand(b.take(name, n), b, n)
		count("a hand-over", func() { h = b.hand(h, b, n) })
		b.free(h)
	}
	for what, of := range counts {
		if of[driver.MaxTokens] != of[1] {
			t.Errorf("%s takes %d statements with %d tokens, and %d with one", what, of[driver.MaxTokens], driver.MaxTokens,
				of[1])
		}
	}
	// Some servers cannot return the holder in the statement that joins the queue.
	if pair, over := counts["a pair"][1], counts["a hand-over"][1]; pair != 2 || over > 3 {
		t.Errorf("an uncontended pair takes %d statements, and a place with a hand-over %d; want 2, and 3 at most", pair, over)
	}
}

// inTx takes n tokens in a transaction of the application.
func inTx(t *testing.T, s *sqllock.Server, db *sql.DB, name string, n int) (token int64) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	r := &driver.Request{ID: "in-tx", Name: name, Mode: driver.Exclusive, N: 1, Tokens: n}
	rep, err := s.AcquireInTx(t.Context(), tx, r, time.Minute)
	if err != nil || rep.Token == 0 {
		t.Fatalf("AcquireInTx: %+v, %v", rep, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return int64(rep.Token)
}

// BlocksAreDamaged makes a waiter's block too large. The statement that hands over must leave that
// to the call that reads the row and reports it.
func BlocksAreDamaged(t *testing.T, dialect sqllock.Dialect, db *sql.DB) {
	s := sqllock.New(db, dialect, nil)
	defer func() { _ = s.Close() }()
	b := &blocks{T: t, Session: open(t, s, "damaged"), id: "damaged"}
	defer func() { _ = b.Close(context.Background()) }()
	for tokens, damaged := range map[int]bool{driver.MaxTokens: false, driver.MaxTokens + 1: true, 0: true, -1: true} {
		h := b.take(fmt.Sprint("damaged/", tokens), 1)
		b.ask(h.Name, 7)
		if _, err := db.Exec(fmt.Sprintf("UPDATE hf_lock SET line = REPLACE(line, ' 1 7 ', ' 1 %d ') WHERE name = '%s'",
			tokens, h.Name)); err != nil {
			t.Fatal(err)
		}
		if err := b.Release(t.Context(), h, 0); errors.Is(err, driver.ErrDamaged) != damaged {
			t.Errorf("a release before a waiter that takes %d tokens: %v; want ErrDamaged: %v", tokens, err, damaged)
		}
	}
}

// BlocksAreNew takes blocks where the clock or the floor decides: all tokens must be larger than
// any that a lost row may have had. The floor is ahead of the clock, so each block begins where the
// last one ended, however long the statements take.
func BlocksAreNew(t *testing.T, dialect func() sqllock.Dialect, db *sql.DB) {
	const n = driver.MaxTokens
	clock := func() (us int64) {
		t.Helper()
		if err := db.QueryRow(dialect().Text("SELECT {now}")).Scan(&us); err != nil {
			t.Fatal(err)
		}
		return us
	}
	exec := func(text string) {
		t.Helper()
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(id string) (*sqllock.Server, *blocks) {
		s := sqllock.New(db, dialect(), nil)
		t.Cleanup(func() { _ = s.Close() })
		return s, &blocks{T: t, Session: open(t, s, id), id: id}
	}
	s, b := serve("clock")
	// blank makes a row that has never had a token.
	blank := func(name string) {
		t.Helper()
		for _, limit := range []int{2, 0} {
			if err := s.SetLimit(t.Context(), name, limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	blank("new/blank")
	b.free(b.take("new/replaced", 1)) // this process knows it as free
	exec("DELETE FROM hf_lock WHERE name = 'new/replaced'")
	blank("new/replaced")
	for _, name := range []string{"new/none", "new/blank", "new/replaced"} {
		before := clock()
		h := b.take(name, n)
		if low := int64(h.Token) - n + 1; low < before {
			t.Errorf("%s: a block from %d on; the clock was at %d before", name, low, before)
		}
		time.Sleep(2 * time.Millisecond)
		b.free(h)
		if h := b.take(name, n); int64(h.Token) > clock() {
			t.Errorf("%s: a block up to %d, ahead of the clock at %d", name, h.Token, clock())
		}
	}
	before := clock()
	if low := inTx(t, s, db, "new/tx", n) - n + 1; low < before {
		t.Errorf("in a transaction: a block from %d on; the clock was at %d before", low, before)
	}
	b.free(b.take("floor/row", 1))
	blank("floor/blank")
	b.free(b.take("floor/free", 1))
	held := b.take("floor/held", 1)
	floor := clock() + time.Hour.Microseconds()
	exec(fmt.Sprintf("UPDATE hf_meta SET floor = %d", floor))
	if _, err := hook.SQLSweep(t.Context(), s, nil, time.Hour); err != nil { // it reads the floor
		t.Fatal(err)
	}
	last := floor
	block := func(what string, h driver.Hold, n int) driver.Hold {
		t.Helper()
		if last += int64(n); int64(h.Token) != last {
			t.Errorf("%s, %s: a block up to %d; want %d", h.Name, what, h.Token, last)
		}
		return h
	}
	b.free(block("handed over", b.hand(held, b, n), n))
	last = floor
	b.free(block("taken again", b.take("floor/free", n), n))
	_, b = serve("floor")
	for _, name := range []string{"floor/none", "floor/row", "floor/blank"} {
		last = floor
		_, c := serve("c" + name[6:])
		_, d := serve("d" + name[6:])
		h := block("taken", b.take(name, n), n)
		h = block("handed to a newcomer", b.hand(h, c, n), n)
		h = block("handed back", c.hand(h, b, n), n)
		b.free(h)
		d.free(block("taken by a newcomer", d.take(name, n), n))
		b.free(block("taken again", b.take(name, 7), 7))
		b.free(block("and again", b.take(name, n), n))
	}
}
