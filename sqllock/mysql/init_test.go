package mysql_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestInit(t *testing.T) {
	t.Parallel()
	server := testenv.MariaDB(t)
	dsn := server.DSN("root", "")
	db := pool(t, dsn)
	d := mysql.Dialect()

	// Without tables.
	refuses(t, dsn, "holdfast init")
	server.Exec("CREATE USER nobody@'127.0.0.1'", "GRANT SELECT ON test.* TO nobody@'127.0.0.1'")
	if err := sqllock.Init(t.Context(), pool(t, server.DSN("nobody", "")), d); !errors.Is(err, driver.ErrRefused) ||
		!strings.Contains(err.Error(), "right to create tables") {
		t.Errorf("Init by a user without the right: %v", err)
	}
	refuses(t, server.DSN("nobody", ""), "holdfast init")

	// Several at once, and again.
	var wg sync.WaitGroup
	for range 8 {
		own := pool(t, dsn)
		wg.Go(func() {
			if err := sqllock.Init(t.Context(), own, d); err != nil {
				t.Errorf("concurrent Init: %v", err)
			}
		})
	}
	wg.Wait()
	a := join(t, dsn, time.Minute)
	h := a.get(a.req("x"))
	if err := sqllock.Init(t.Context(), db, d); err != nil {
		t.Errorf("Init again: %v", err)
	}
	if ch := a.renew(h); ch.State != 0 {
		t.Errorf("Renew after Init = %+v", ch)
	}
	a.release(h)

	// After an Init that stopped half way.
	for _, half := range [][]string{
		{"DROP TABLE hf_lock, hf_done, hf_bell", "DELETE FROM hf_meta"},
		{"DROP TABLE hf_bell, hf_meta"},
		{"UPDATE hf_meta SET version = 0", "DROP TABLE hf_done"},
	} {
		run(t, db, half...)
		refuses(t, dsn, "holdfast init")
		if err := sqllock.Init(t.Context(), db, d); err != nil {
			t.Errorf("Init after %q: %v", half, err)
		}
		operations(t, dsn)
	}

	// A later version.
	run(t, db, "UPDATE hf_meta SET version = 99")
	refuses(t, dsn, "version 99")
	if err := sqllock.Init(t.Context(), db, d); !errors.Is(err, driver.ErrRefused) ||
		!strings.Contains(err.Error(), "99") {
		t.Errorf("Init of tables of a later version: %v", err)
	}
	run(t, db, "UPDATE hf_meta SET version = 1", "DROP TABLE hf_bell")
	refuses(t, dsn, "holdfast init")
}

// Schema does what Init does, for operators who run it by hand.
func TestSchema(t *testing.T) {
	t.Parallel()
	server := testenv.MariaDB(t, "--sql-mode=ANSI,TRADITIONAL,NO_ENGINE_SUBSTITUTION",
		"--innodb-default-row-format=compact", "--character-set-server=utf8mb4")
	server.Exec(sqllock.Schema(mysql.Dialect())...)
	server.Exec(sqllock.Schema(mysql.Dialect())...) // again
	operations(t, server.DSN("root", ""))
}

// A latch that ended because its row was deleted starts afresh.
func TestLatchAfterItsRowWasDeleted(t *testing.T) {
	t.Parallel()
	server := maria(t)
	a := join(t, server.DSN("root", ""), time.Minute)
	for _, rows := range []int{0, 1} {
		created, tries := false, 0
		if err := testenv.Repeated(func() (err error) {
			tries++
			created, err = a.SetCount(t.Context(), "latch", 2)
			return err
		}); err != nil || !created && tries == 1 {
			t.Fatalf("SetCount = %v, %v", created, err)
		}
		var left int64
		if err := testenv.Repeated(func() (err error) {
			left, err = a.CountDown(t.Context(), "latch", "one")
			return err
		}); err != nil || left != 1 {
			t.Errorf("CountDown with %d counts of an earlier latch = %d, %v; want 1", rows, left, err)
		}
		run(t, a.db, "DELETE FROM hf_lock WHERE name = 'latch'")
	}
}

// A read, or a refused request that does not wait, writes nothing.
func TestQuestionsWriteNothing(t *testing.T) {
	t.Parallel()
	server := maria(t)
	a, b := join(t, server.DSN("root", ""), time.Minute), join(t, server.DSN("root", ""), time.Minute)
	same := func(what string, do func()) {
		t.Helper()
		const ver = "SELECT COALESCE(SUM(ver), 0) FROM hf_lock"
		before := value[int64](t, a.db, ver)
		do()
		if after := value[int64](t, a.db, ver); after != before {
			t.Errorf("%s: rows were written", what)
		}
	}
	h := a.get(a.req("x"))
	first, second := b.req("x"), b.req("x")
	b.refused(first)
	b.refused(second)
	if err := b.Cancel(t.Context(), "x", first.ID); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(){
		"Inspect":             func() { a.inspect("x") },
		"a refused request":   func() { b.refused(once(b.req("x"))) },
		"a refused share":     func() { b.refused(once(b.shared("x"))) },
		"a refused kind":      func() { _, _ = b.Acquire(t.Context(), b.permits("x", 1, 2)) },
		"Inspect of no name":  func() { a.inspect("y") },
		"Cancel of nothing":   func() { _ = b.Cancel(t.Context(), "x", "nobody-1") },
		"Release of nothing":  func() { _ = b.Release(t.Context(), driver.Hold{Name: "x", ID: "nobody-1", Token: 1}, 0) },
		"CountDown of a lock": func() { _, _ = b.CountDown(t.Context(), "x", "one") },
	} {
		same(name, do)
	}
	if err := b.Cancel(t.Context(), "x", second.ID); err != nil {
		t.Fatal(err)
	}
	a.release(h)
	same("Inspect of a released name", func() { a.inspect("x") })
}
