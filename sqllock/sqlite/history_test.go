package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

func texts(t *testing.T, b *Backend, name string) (all []string) {
	t.Helper()
	list, err := b.History(t.Context(), name)
	must(t, err)
	for _, e := range list {
		all = append(all, e.Text)
	}
	return all
}

func number(t *testing.T, b *Backend, query string) (n int) {
	t.Helper()
	must(t, b.st.r.with(t.Context(), func() error {
		return b.st.r.c.QueryRowContext(t.Context(), query).Scan(&n)
	}))
	return n
}

func TestSQLiteHistoryGrowth(t *testing.T) {
	const keep = 50
	b := openTest(t, storePath(t), nil)
	all := testenv.Rounds(400, 10_000)
	for i := range all {
		must(t, b.AddHistory(t.Context(), "x", fmt.Sprint("entry ", i), keep))
	}
	if got := texts(t, b, "x"); len(got) != keep || got[0] != fmt.Sprint("entry ", all-keep) ||
		got[keep-1] != fmt.Sprint("entry ", all-1) {
		t.Errorf("%d entries: %q", len(got), got)
	}
	if n := number(t, b, `SELECT count(*) FROM history`); n != keep {
		t.Errorf("%d rows; want %d", n, keep)
	}
	checkIntegrity(t, b)
}

// A file of the release without histories has no table for them. Reading does not create it, and the
// file's version stays, so that clients of that release go on.
func TestSQLiteHistoryOfTheReleaseBefore(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	const tables = `SELECT count(*) FROM sqlite_schema WHERE name LIKE 'history%'`
	s := openTestSession(t, b, time.Minute)
	h := granted(t, s, exclusive("x"))
	if got := texts(t, b, "x"); len(got) > 0 || number(t, b, tables) != 0 {
		t.Fatalf("History = %q, %d tables; want none", got, number(t, b, tables))
	}
	b.st.sweepHistories(t.Context())
	must(t, b.AddHistory(t.Context(), "x", "first", 5))
	if n := number(t, b, tables); n != 2 {
		t.Errorf("%d tables and indexes", n)
	}
	if n := number(t, b, `PRAGMA user_version`); n != 1 {
		t.Errorf("the file has version %d; clients of the release before need 1", n)
	}
	execOn(t, b.st, `DROP TABLE history`) // an operator
	if got := texts(t, b, "x"); len(got) > 0 {
		t.Errorf("History = %q", got)
	}
	must(t, b.AddHistory(t.Context(), "x", "second", 5))
	if got := texts(t, b, "x"); !slices.Equal(got, []string{"second"}) {
		t.Errorf("History = %q", got)
	}
	must(t, s.Release(t.Context(), h, 0))
}

// Entries outlive a reboot, which ends all leases. The clock of the boot starts again, and the wall
// clock goes back: the order stays.
func TestSQLiteHistoryAfterAReboot(t *testing.T) {
	path := storePath(t)
	c := &clock{}
	c.now.Store(int64(time.Hour))
	c.wall.Store(1_700_000_000_000_000)
	b, err := Open(path, &Config{env: c.env()})
	must(t, err)
	must(t, b.AddHistory(t.Context(), "x", "before", 2))
	must(t, b.Close())
	c.now.Store(int64(time.Second))
	c.wall.Add(time.Hour.Microseconds())
	env := c.env()
	env.boot = func() (string, error) { return "boot-2", nil }
	b = openTest(t, path, &Config{env: env})
	if list, err := b.History(t.Context(), "x"); err != nil || len(list) != 1 || list[0].Age != time.Hour {
		t.Errorf("History = %+v, %v; want one of an hour", list, err)
	}
	c.wall.Store(1_600_000_000_000_000)
	must(t, b.AddHistory(t.Context(), "x", "after", 2))
	list, err := b.History(t.Context(), "x")
	if err != nil || len(list) != 2 || list[0].Text != "before" || list[0].Age != 0 {
		t.Errorf("History = %+v, %v", list, err)
	}
	must(t, b.AddHistory(t.Context(), "x", "last", 2))
	if got := texts(t, b, "x"); !slices.Equal(got, []string{"after", "last"}) {
		t.Errorf("History = %q", got)
	}
}

// Old histories go when entries are added, or when the store is swept.
func TestSQLiteOldHistories(t *testing.T) {
	c := &clock{}
	c.wall.Store(1_700_000_000_000_000)
	b := openTest(t, storePath(t), &Config{env: c.env()})
	add := func(name, text string) {
		t.Helper()
		must(t, b.AddHistory(t.Context(), name, text, 5))
	}
	for i := range 20 {
		add(fmt.Sprint("old ", i), "text")
	}
	add("live", "first")
	c.wall.Add(driver.HistoryLife.Microseconds())
	add("live", "second")
	if n := number(t, b, `SELECT count(*) FROM history`); n != 22 {
		t.Errorf("%d rows: nothing is older than HistoryLife", n)
	}
	c.wall.Add(1)
	add("live", "third")
	if n := number(t, b, `SELECT count(*) FROM history`); n != 22 {
		t.Errorf("%d rows; want one old history less, and one entry more", n)
	}
	for range 2 {
		b.st.sweepHistories(t.Context())
	}
	if n := number(t, b, `SELECT count(*) FROM history`); n != 3 {
		t.Errorf("%d rows; want those of the live history", n)
	}
	if got := texts(t, b, "live"); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("History = %q", got)
	}
}

// Another program damages entries, or the table. Errors say so; other histories and locks are
// unaffected.
func TestSQLiteDamagedHistory(t *testing.T) {
	for what, c := range map[string]struct {
		stmt  string
		whole bool // the table, not an entry
	}{
		"time":    {`UPDATE history SET at = 'soon' WHERE name = ?`, false},
		"text":    {`UPDATE history SET entry = x'ff' WHERE name = ?`, false},
		"empty":   {`UPDATE history SET entry = x'' WHERE name = ?`, false},
		"columns": {`DROP TABLE history; CREATE TABLE history (x); INSERT INTO history VALUES (?)`, true},
		"a view":  {`ALTER TABLE history RENAME TO other; CREATE TABLE history AS SELECT ? AS name`, true},
	} {
		t.Run(what, func(t *testing.T) {
			b := openTest(t, storePath(t), nil)
			s := openTestSession(t, b, time.Minute)
			for _, name := range []string{"bad", "good"} {
				must(t, b.AddHistory(t.Context(), name, "text", 5))
			}
			execOn(t, b.st, c.stmt, []byte("bad"))
			says := func(call string, err error) {
				t.Helper()
				if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), "history") ||
					!c.whole && !strings.Contains(err.Error(), `"bad"`) {
					t.Errorf("%s: %v", call, err)
				}
			}
			_, err := b.History(t.Context(), "bad")
			says("History", err)
			if c.whole {
				says("AddHistory", b.AddHistory(t.Context(), "good", "other", 5))
			} else if got := texts(t, b, "good"); !slices.Equal(got, []string{"text"}) {
				t.Errorf("another history = %q", got)
			}
			h := granted(t, s, exclusive("bad"))
			must(t, s.Release(t.Context(), h, 0))
		})
	}
	b := openTest(t, storePath(t), nil)
	must(t, b.AddHistory(t.Context(), "bad", "text", 5))
	for _, seq := range []string{"'x'", "9223372036854775807"} {
		execOn(t, b.st, `UPDATE history SET seq = `+seq)
		if err := b.AddHistory(t.Context(), "bad", "other", 5); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("AddHistory after the number %s: %v", seq, err)
		}
	}
}

// Histories leave the last space of a file system to locks.
func TestSQLiteHistoryLeavesRoom(t *testing.T) {
	e := machine
	free := uint64(historyReserve - 1)
	e.place = func(string) (host.Place, error) { return host.Place{Kind: "ext4", Free: free}, nil }
	b := openTest(t, filepath.Join(t.TempDir(), "locks.db"), &Config{env: &e})
	if err := b.AddHistory(t.Context(), "x", "text", 5); !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "no space") {
		t.Errorf("AddHistory: %v", err)
	}
	s := openTestSession(t, b, time.Minute)
	must(t, s.Release(t.Context(), granted(t, s, exclusive("x")), 0))
	if got := texts(t, b, "x"); len(got) > 0 {
		t.Errorf("History = %q", got)
	}
	free++
	must(t, b.AddHistory(t.Context(), "x", "text", 5))
}

func TestSQLiteWhyMissing(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s := openTestSession(t, b, time.Minute)
	granted(t, s, exclusive("x"))
	if cause, err := b.WhyMissing(t.Context(), "x", time.Second); cause != driver.CauseUnknown || err != nil {
		t.Errorf("without another row: %q, %v", cause, err)
	}
	granted(t, s, exclusive("y"))
	execOn(t, b.st, `DELETE FROM lock WHERE name = ?`, []byte("x"))
	if cause, err := b.WhyMissing(t.Context(), "x", time.Second); cause != driver.CauseDeleted || err != nil {
		t.Errorf("with another row: %q, %v", cause, err)
	}
	if _, err := b.WhyMissing(t.Context(), "", time.Second); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("of no name: %v", err)
	}
}
