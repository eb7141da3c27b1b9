package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// blocks takes blocks of tokens.
type blocks struct {
	*testing.T
	driver.Session
	ids int
}

// ask asks for a lock that takes n tokens.
func (b *blocks) ask(name string, n int) (driver.Hold, driver.Reply) {
	b.Helper()
	b.ids++
	r := &driver.Request{ID: fmt.Sprint("block-", b.ids), Name: name, Mode: driver.Exclusive, N: 1, Wait: true, Tokens: n}
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

// hand queues a request that takes n tokens, and releases h.
func (b *blocks) hand(h driver.Hold, n int) driver.Hold {
	b.Helper()
	next, rep := b.ask(h.Name, n)
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
	db := OpenBreaking(t, admin, dsn)
	s := sqllock.New(db.DB, dialect(), &sqllock.Config{Listen: listens(dialect(), admin)})
	defer func() { _ = s.Close() }()
	b := &blocks{T: t, Session: open(t, s, "counted")}
	defer func() { _ = b.Close(context.Background()) }()
	counts := map[string]map[int]int{}
	for _, n := range []int{1, driver.MaxTokens} {
		name := fmt.Sprint("counted/", n)
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
		h := b.hand(b.take(name, n), n)
		count("a hand-over", func() { h = b.hand(h, n) })
		b.free(h)
	}
	for what, of := range counts {
		if of[driver.MaxTokens] != of[1] {
			t.Errorf("%s takes %d statements with %d tokens, and %d with one", what, of[driver.MaxTokens], driver.MaxTokens, of[1])
		}
	}
	if pair, over := counts["a pair"][1], counts["a hand-over"][1]; pair != 2 || over != 2 {
		t.Errorf("an uncontended pair takes %d statements, and a place with a hand-over %d; want 2", pair, over)
	}
}

// BlocksAreNew takes blocks where the clock or the floor decides: all tokens must be larger than any
// that a lost row may have had.
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
		return s, &blocks{T: t, Session: open(t, s, id)}
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
	b.free(b.take("floor/row", 1))
	blank("floor/blank")
	floor := clock() + time.Hour.Microseconds()
	exec(fmt.Sprintf("UPDATE hf_meta SET floor = %d", floor))
	_, b = serve("floor")
	for i, name := range []string{"floor/none", "floor/row", "floor/blank"} {
		h := b.take(name, n)
		if int64(h.Token) != floor+n {
			t.Errorf("%s: a block up to %d; want %d", name, h.Token, floor+n)
		}
		if h = b.hand(h, n); int64(h.Token) != floor+2*n {
			t.Errorf("%s, handed over: a block up to %d; want %d", name, h.Token, floor+2*n)
		}
		if b.free(h); i == 0 {
			continue
		}
		if h = b.take(name, 7); int64(h.Token) != floor+2*n+7 {
			t.Errorf("%s, taken again: a block up to %d; want %d", name, h.Token, floor+2*n+7)
		}
	}
}
