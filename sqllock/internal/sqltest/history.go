package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// Histories is a server of its own, on which tests change the table of the histories.
type Histories struct {
	Dialect func() sqllock.Dialect
	Open    func() *sql.DB         // a new pool
	Serial  func() *sql.DB         // one whose transactions are serializable
	Lock    func() (unlock func()) // locks the table against everybody
	Conns   func() int             // the server's connections
	Version int                    // of the tables, in the release without histories
	Rename  string                 // a statement that renames the column entry
}

// Run runs all tests.
func (x *Histories) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"growth", x.growth}, {"at once", func(t *testing.T) { x.atOnce(t, x.Open) }},
		{"at once, serializable", func(t *testing.T) { x.atOnce(t, x.Serial) }},
		{"sweep", x.sweep}, {"clock set back", x.clockSetBack}, {"locked table", x.lockedTable},
		{"why missing", x.whyMissing}, {"damage", x.damage}, {"release before", x.releaseBefore},
	} {
		t.Run(c.name, c.f)
	}
}

func (x *Histories) server(t *testing.T, db *sql.DB) *sqllock.Server {
	t.Helper()
	b := sqllock.New(db, x.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func add(t *testing.T, b *sqllock.Server, name, text string, keep int) {
	t.Helper()
	if err := b.AddHistory(t.Context(), name, text, keep); err != nil {
		t.Fatalf("AddHistory(%q, %q): %v", name, text, err)
	}
}

func texts(t *testing.T, b *sqllock.Server, name string) (all []string) {
	t.Helper()
	list, err := b.History(t.Context(), name)
	if err != nil {
		t.Fatalf("History(%q): %v", name, err)
	}
	for _, e := range list {
		all = append(all, e.Text)
	}
	return all
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// growth adds many entries to one name: the table keeps the last.
func (x *Histories) growth(t *testing.T) {
	const keep = 50
	db := x.Open()
	b := x.server(t, db)
	all := testenv.Rounds(400, 10_000)
	for i := range all {
		add(t, b, "growth", fmt.Sprint("entry ", i), keep)
	}
	if got := texts(t, b, "growth"); len(got) != keep || got[0] != fmt.Sprint("entry ", all-keep) ||
		got[keep-1] != fmt.Sprint("entry ", all-1) {
		t.Errorf("%d entries: %q", len(got), got)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM hf_history"); n != keep {
		t.Errorf("%d rows; want %d", n, keep)
	}
}

// atOnce adds entries to neighbouring names from several processes, which drop older ones, while
// others read and sweep. No call fails, and each name keeps as many as it should.
func (x *Histories) atOnce(t *testing.T, pool func() *sql.DB) {
	const processes, keep = 6, 3
	each := testenv.Rounds(60, 500)
	names := []string{t.Name() + "/a", t.Name() + "/b", t.Name() + "/c"}
	var all sync.WaitGroup
	for p := range processes {
		b := x.server(t, pool())
		all.Go(func() {
			for i := range each {
				name := names[(i+p)%len(names)]
				if err := b.AddHistory(t.Context(), name, fmt.Sprint(p%3, " ", i), keep); err != nil { // some add the same
					t.Errorf("AddHistory: %v", err)
				}
				if _, err := b.History(t.Context(), name); err != nil {
					t.Errorf("History: %v", err)
				}
				if i%10 == p {
					if _, err := hook.SQLSweepHistories(t.Context(), b, nil, time.Hour); err != nil {
						t.Errorf("sweep: %v", err)
					}
				}
			}
		})
	}
	all.Wait()
	b := x.server(t, x.Open())
	for _, name := range names {
		if got := texts(t, b, name); len(got) != keep || len(slices.Compact(slices.Sorted(slices.Values(got)))) != keep {
			t.Errorf("%q: %q", name, got)
		}
	}
}

// sweep deletes histories that are old, and no other.
func (x *Histories) sweep(t *testing.T) {
	db := x.Open()
	b := x.server(t, db)
	execute(t, db, "DELETE FROM hf_history")
	names := []string{"", "b", "b\x00", "c", "d"}
	for _, name := range names {
		add(t, b, name, "old", 5)
	}
	execute(t, db, fmt.Sprintf("UPDATE hf_history SET at = at - %d", (driver.HistoryLife+time.Minute).Microseconds()))
	add(t, b, "c", "new", 5)
	add(t, b, "e", "new", 5)
	if next, err := hook.SQLSweepHistories(t.Context(), b, nil, driver.HistoryLife); err != nil || next != nil {
		t.Fatalf("sweep: %q, %v", next, err)
	}
	for _, name := range append(names, "e") {
		want := map[string][]string{"c": {"old", "new"}, "e": {"new"}}[name]
		if got := texts(t, b, name); !slices.Equal(got, want) {
			t.Errorf("%q: %q; want %q", name, got, want)
		}
	}
	// More names than one sweep looks at: it stops, and the next continues.
	const many = 6000
	var rows []string
	for i := range many {
		rows = append(rows, fmt.Sprintf("('many %05d', '%032d', 'text', 1)", i, i))
	}
	for some := range slices.Chunk(rows, 1000) {
		execute(t, db, "INSERT INTO hf_history (name, digest, entry, at) VALUES "+strings.Join(some, ", "))
	}
	next, err := hook.SQLSweepHistories(t.Context(), b, nil, driver.HistoryLife)
	if left := count(t, db, "SELECT COUNT(*) FROM hf_history"); err != nil || next == nil || left < 500 {
		t.Errorf("the first sweep: %q, %v, %d left", next, err, left)
	}
	if next, err = hook.SQLSweepHistories(t.Context(), b, next, driver.HistoryLife); err != nil || next != nil {
		t.Errorf("the second sweep: %q, %v", next, err)
	}
	if left := count(t, db, "SELECT COUNT(*) FROM hf_history"); left != 3 {
		t.Errorf("%d rows left; want 3", left)
	}
}

// clockSetBack adds entries before and after the server's clock is set back by an hour.
func (x *Histories) clockSetBack(t *testing.T) {
	db := x.Open()
	b := x.server(t, db)
	add(t, b, "clock", "before", 2)
	execute(t, db, fmt.Sprintf("UPDATE hf_history SET at = at + %d", time.Hour.Microseconds()))
	add(t, b, "clock", "after", 2)
	if got := texts(t, b, "clock"); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("History = %q", got)
	}
	if list, err := b.History(t.Context(), "clock"); err != nil || list[0].Age != 0 {
		t.Errorf("History = %+v, %v; want age 0", list, err)
	}
	add(t, b, "clock", "last", 2)
	if got := texts(t, b, "clock"); !slices.Equal(got, []string{"after", "last"}) {
		t.Errorf("the oldest is to be dropped, not the one with the earliest time: %q", got)
	}
}

// lockedTable uses locks while nobody can use the table of the histories, with a large pool and with
// the smallest. Calls about histories end with their contexts, and work when the table is free.
func (x *Histories) lockedTable(t *testing.T) {
	for _, size := range []int{0, 3} {
		db := x.Open()
		db.SetMaxOpenConns(size)
		b := x.server(t, db)
		s := open(t, b, fmt.Sprint("locked", size))
		add(t, b, "locked", fmt.Sprint("before ", size), 9)
		unlock, before := x.Lock(), x.Conns()
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					if _, err := b.History(ctx, ""); err == nil {
						t.Error("History of a locked table: no error")
					}
					cancel()
				}
			})
		}
		time.Sleep(3 * time.Second) // until all places of histories are in use, and some calls have ended
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			r := &driver.Request{ID: fmt.Sprint("locked-", size, "-", i), Name: fmt.Sprint("locked/", i%3),
				Mode: driver.Exclusive, N: 1}
			rep, err := s.Acquire(ctx, r)
			h := driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
			if err != nil || rep.Token == 0 {
				t.Errorf("Acquire: %+v, %v", rep, err)
			} else if ch, err := s.Renew(ctx, []driver.Hold{h}); err != nil || len(ch) > 0 {
				t.Errorf("Renew: %+v, %v", ch, err)
			} else if err := s.Release(ctx, h, 0); err != nil {
				t.Errorf("Release: %v", err)
			}
			cancel()
		}
		close(stop)
		readers.Wait()
		// Calls that have ended leave no connection, as soon as the server has noticed. The table is still
		// locked.
		const most = 12
		for end := time.Now().Add(30 * time.Second); x.Conns()-before > most; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%d more connections to the server; want at most %d", x.Conns()-before, most)
				break
			}
		}
		unlock()
		add(t, b, "locked", fmt.Sprint("after ", size), 9)
		if got := texts(t, b, "locked"); !slices.Contains(got, fmt.Sprint("after ", size)) {
			t.Errorf("History = %q", got)
		}
		_ = s.Close(t.Context())
		_ = b.Close()
	}
}

// whyMissing asks for causes. An error of the server is no cause.
func (x *Histories) whyMissing(t *testing.T) {
	db := x.Open()
	b := x.server(t, db)
	execute(t, db, "DELETE FROM hf_lock")
	if cause, err := b.WhyMissing(t.Context(), "x", time.Minute); cause != driver.CauseUnknown || err != nil {
		t.Errorf("without any row: %q, %v", cause, err)
	}
	s := open(t, b, "why")
	for _, name := range []string{"x", "y"} {
		r := &driver.Request{ID: "why-" + name, Name: name, Mode: driver.Exclusive, N: 1}
		if _, err := s.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, db, "DELETE FROM hf_lock WHERE name = 'x'")
	if cause, err := b.WhyMissing(t.Context(), "x", time.Minute); cause != driver.CauseDeleted || err != nil {
		t.Errorf("with other rows: %q, %v", cause, err)
	}
	if _, err := b.WhyMissing(t.Context(), "", time.Minute); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("of no name: %v", err)
	}
}

// damage changes rows, and then the table. Errors name it; other histories and locks are unaffected.
func (x *Histories) damage(t *testing.T) {
	db := x.Open()
	b := x.server(t, db)
	s := open(t, b, "damage")
	n := 0
	works := func(what string) {
		t.Helper()
		n++
		r := &driver.Request{ID: fmt.Sprint("works-", n), Name: "damaged", Mode: driver.Exclusive, N: 1}
		rep, err := s.Acquire(t.Context(), r)
		if err == nil {
			err = s.Release(t.Context(), driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}, 0)
		}
		if err != nil || rep.Token == 0 {
			t.Errorf("%s: a lock of that name: %+v, %v", what, rep, err)
		}
	}
	says := func(what string, err, sentinel error, words ...string) {
		t.Helper()
		for _, w := range append(words, "hf_history") {
			if !errors.Is(err, sentinel) || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %v with %q", what, err, sentinel, w)
			}
		}
	}
	add(t, b, "whole", "kept", 5)
	for _, value := range []string{"''", "x'ff'"} {
		if strings.Contains(fmt.Sprintf("%T", db.Driver()), "stdlib") { // pgx
			value = strings.ReplaceAll(value, "x'ff'", `'\xff'`)
		}
		add(t, b, "damaged", "text", 5)
		execute(t, db, "UPDATE hf_history SET entry = "+value+" WHERE name = 'damaged'")
		_, err := b.History(t.Context(), "damaged")
		says(value, err, driver.ErrDamaged, `"damaged"`)
		works(value)
		execute(t, db, "DELETE FROM hf_history WHERE name = 'damaged'")
	}
	if got := texts(t, b, "whole"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("another history = %q", got)
	}
	execute(t, db, x.Rename)
	_, err := b.History(t.Context(), "whole")
	says("another column", err, driver.ErrRefused)
	says("another column", b.AddHistory(t.Context(), "whole", "x", 5), driver.ErrRefused)
	works("another column")
	execute(t, db, "DROP TABLE hf_history")
}

// releaseBefore uses tables as the release without histories has left them.
func (x *Histories) releaseBefore(t *testing.T) {
	db := x.Open()
	execute(t, db, "DROP TABLE IF EXISTS hf_history")
	b := x.server(t, db)
	s := open(t, b, "before")
	r := &driver.Request{ID: "before-1", Name: "before", Mode: driver.Exclusive, N: 1}
	rep, err := s.Acquire(t.Context(), r)
	if err != nil || rep.Token == 0 {
		t.Fatalf("Acquire: %+v, %v", rep, err)
	}
	h := driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
	_, reads := b.History(t.Context(), "")
	for what, err := range map[string]error{
		"AddHistory": b.AddHistory(t.Context(), "before", "x", 5), "History": reads,
	} {
		if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), `"holdfast init"`) ||
			!strings.Contains(err.Error(), "hf_history") {
			t.Errorf("%s without the table: %v", what, err)
		}
	}
	if _, err := b.Diagnose(t.Context(), time.Minute); err != nil {
		t.Errorf("doctor: %v", err)
	}
	var all sync.WaitGroup
	for range 4 { // at once, while the lock is held
		all.Go(func() {
			if err := sqllock.Init(t.Context(), x.Open(), x.Dialect()); err != nil {
				t.Errorf("Init: %v", err)
			}
		})
	}
	all.Wait()
	add(t, b, "before", "x", 5) // the client was open before
	if got := texts(t, b, "before"); !slices.Equal(got, []string{"x"}) {
		t.Errorf("History = %q", got)
	}
	if ch, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil || len(ch) > 0 {
		t.Errorf("Renew after Init: %+v, %v", ch, err)
	}
	// Clients of that release refuse tables of a later version.
	if n := count(t, db, "SELECT version FROM hf_meta"); n != x.Version {
		t.Errorf("the tables have version %d; clients of the release before need %d", n, x.Version)
	}
}
