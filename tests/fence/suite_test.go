package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// suite runs the tests for every database at every isolation level.
func suite(t *testing.T, d *database) {
	exec(t, d.db, `DELETE FROM hf_fence`)
	t.Run("Order", func(t *testing.T) { testOrder(t, d) })
	t.Run("Bytes", func(t *testing.T) { testBytes(t, d) })
	t.Run("Refused", func(t *testing.T) { testRefused(t, d) })
	t.Run("NameLikeAnError", func(t *testing.T) { testNameLikeAnError(t, d) })
	t.Run("RolledBack", func(t *testing.T) { testRolledBack(t, d) })
	t.Run("SeveralResources", func(t *testing.T) { testSeveral(t, d) })
	if !d.excludes { // else a transaction that has started keeps all others out
		t.Run("Fresh", func(t *testing.T) { testFresh(t, d) })
	}
	if d.lateBegin != "" { // else a transaction that has read keeps all others out
		t.Run("Late", func(t *testing.T) { testLate(t, d) })
	}
	t.Run("Interleavings", func(t *testing.T) { testInterleavings(t, d) })
	t.Run("Paused", func(t *testing.T) { testPaused(t, d) })
	t.Run("Concurrent", func(t *testing.T) { testConcurrent(t, d) })
	t.Run("Cancelled", func(t *testing.T) { testCancelled(t, d) })
}

// testOrder begins with tokens one after another: the first, equal, larger, smaller, the largest.
func testOrder(t *testing.T, d *database) {
	ctx := testContext(t)
	for _, first := range []uint64{1, 42, 1763735000123456, math.MaxInt64 - 2} {
		resource := fmt.Sprint("order/", first)
		for i, step := range []struct {
			token uint64
			want  error
		}{
			{first, nil}, {first, nil}, {first + 1, nil}, {first, fence.ErrStale}, {first + 1, nil},
			{1, fence.ErrStale}, {math.MaxInt64, nil}, {math.MaxInt64 - 1, fence.ErrStale}, {math.MaxInt64, nil},
		} {
			err := d.touch(ctx, resource, step.token)
			if !errors.Is(err, step.want) {
				t.Fatalf("from %d, step %d, token %d: got %v; want %v", first, i, step.token, err, step.want)
			}
			if err != nil && (errors.Is(err, fence.ErrRetry) || !strings.Contains(err.Error(), fmt.Sprintf("%q", resource))) {
				t.Errorf("the error of a stale token is %q", err)
			}
		}
	}
}

// testBytes checks that resources that are equal in many collations have separate tokens.
func testBytes(t *testing.T, d *database) {
	ctx := testContext(t)
	alike := []string{
		"a", "A", "a ", "a  ", " a", "a\x00", "a\t", "ä", "a\u0308", "Ä", "ß", "ss", "ＡＢＣ", "ABC",
		"'", "''", `\`, `\\`, `"`, "`", "x'61'", "%", "_", "?", "$1", "a\nb", "a\r\nb", "\U0001F512",
		strings.Repeat("x", 511), strings.Repeat("x", 512), strings.Repeat("\U0001F512", 128),
	}
	for i, resource := range alike {
		if err := d.touch(ctx, resource, uint64(1000-i)); err != nil {
			t.Errorf("%q has the token of another resource: %v", resource, err)
		}
	}
	for i, resource := range alike {
		wantErr(t, d.touch(ctx, resource, uint64(1000-i-1)), fence.ErrStale)
		must(t, d.touch(ctx, resource, uint64(1000-i)))
	}
}

// testRefused checks arguments that are refused before the database is asked, and that a refused
// transaction has ended.
func testRefused(t *testing.T, d *database) {
	ctx := testContext(t)
	name := d.counter(t)
	must(t, d.touch(ctx, name, 5))
	for _, c := range []struct {
		dialect  fence.Dialect
		resource string
		token    uint64
		want     error
		text     string
	}{
		{d.dialect, name, 4, fence.ErrStale, "4 is smaller than 5"},
		{d.dialect, name, 0, fence.ErrInvalid, "token 0"},
		{d.dialect, name, math.MaxInt64 + 1, fence.ErrInvalid, "1 to 9223372036854775807"},
		{d.dialect, name, math.MaxUint64, fence.ErrInvalid, "1 to 9223372036854775807"},
		{d.dialect, "", 6, fence.ErrInvalid, "empty"},
		{d.dialect, strings.Repeat("x", 513), 6, fence.ErrInvalid, "1 to 512"},
		{d.dialect, "a\xff", 6, fence.ErrInvalid, "UTF-8"},
		{0, name, 6, fence.ErrInvalid, "MySQL, PostgreSQL and SQLite"},
		{fence.SQLite + 1, name, 6, fence.ErrInvalid, "MySQL, PostgreSQL and SQLite"},
	} {
		tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.level})
		must(t, err)
		err = fence.Begin(ctx, tx, c.dialect, c.resource, c.token)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q, token %d: got %v; want %v with %q", c.resource, c.token, err, c.want, c.text)
		}
		if err := write(ctx, tx, name, 99); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%q, token %d: a write after the refusal: %v; want %v", c.resource, c.token, err, sql.ErrTxDone)
		}
		if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%q, token %d: a commit after the refusal: %v; want %v", c.resource, c.token, err, sql.ErrTxDone)
		}
	}
	must(t, d.touch(ctx, name, 5))
	if n := d.value(t, name); n != 0 {
		t.Errorf("the counter is %d; want 0, because every Begin was refused", n)
	}
}

// testRolledBack checks that a token counts after a commit, and not without one.
func testRolledBack(t *testing.T, d *database) {
	ctx := testContext(t)
	for _, before := range []uint64{0, 3} { // a new resource, a known one
		resource := fmt.Sprint("rolled-back/", before)
		if before != 0 {
			must(t, d.touch(ctx, resource, before))
		}
		tx, err := d.begin(ctx, d.db, resource, 9)
		must(t, err)
		must(t, tx.Rollback())
		must(t, d.touch(ctx, resource, before+1))
		wantErr(t, d.touch(ctx, resource, before), map[uint64]error{0: fence.ErrInvalid, 3: fence.ErrStale}[before])
	}
}

// testSeveral begins for two resources in one transaction. The second refusal undoes the
// first raise.
func testSeveral(t *testing.T, d *database) {
	ctx := testContext(t)
	both := func(a, b uint64) error {
		return d.within(ctx, "several/1", a, func(tx *sql.Tx) error {
			return fence.Begin(ctx, tx, d.dialect, "several/2", b)
		})
	}
	must(t, both(10, 5))
	wantErr(t, both(11, 4), fence.ErrStale)
	must(t, d.touch(ctx, "several/1", 10))
	must(t, both(12, 6))
	wantErr(t, d.touch(ctx, "several/1", 11), fence.ErrStale)
	wantErr(t, d.touch(ctx, "several/2", 5), fence.ErrStale)

	if d.waits == "" {
		return // the first Begin excludes all others
	}
	// Another transaction uses the second resource between the two: reads after both are fresh, or
	// the database returns ErrRetry.
	name := d.counter(t)
	must(t, d.touch(ctx, name, 1))
	tx, err := d.begin(ctx, d.db, "several/1", 13)
	must(t, err)
	must(t, d.add(ctx, name, 1))
	if err = fence.Begin(ctx, tx, d.dialect, name, 2); errors.Is(err, fence.ErrRetry) {
		return
	}
	must(t, err)
	if n, err := read(ctx, tx, name); err != nil || n != 1 {
		t.Errorf("after Begin for both the counter reads %d, %v; want 1", n, err)
	}
	must(t, tx.Commit())
}

// add is a whole transaction that adds one.
func (d *database) add(ctx context.Context, name string, token uint64) error {
	return d.within(ctx, name, token, func(tx *sql.Tx) error {
		n, err := read(ctx, tx, name)
		if err != nil {
			return err
		}
		return write(ctx, tx, name, n+1)
	})
}

// testFresh starts a transaction, lets another one finish, and then begins: it reads what the other
// has written.
func testFresh(t *testing.T, d *database) {
	ctx := testContext(t)
	name := d.counter(t)
	must(t, d.touch(ctx, name, 1))
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.level})
	must(t, err)
	must(t, d.add(ctx, name, 1))
	must(t, fence.Begin(ctx, tx, d.dialect, name, 2))
	n, err := read(ctx, tx, name)
	must(t, err)
	if n != 1 {
		t.Errorf("after Begin the counter reads %d; want 1", n)
	}
	must(t, tx.Commit())
}

// testLate reads before Begin, which is wrong, and checks the consequences that the document names.
func testLate(t *testing.T, d *database) {
	for _, between := range []uint64{1, 2} { // the token of the transaction in between: equal, larger
		ctx := testContext(t)
		name := d.counter(t)
		must(t, d.touch(ctx, name, 1))
		tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.level})
		must(t, err)
		if n, err := read(ctx, tx, name); err != nil || n != 0 {
			t.Fatalf("the counter reads %d, %v", n, err)
		}
		must(t, d.add(ctx, name, between))
		err = fence.Begin(ctx, tx, d.dialect, name, 3)
		if d.lateBegin == "retry" {
			wantErr(t, err, fence.ErrRetry)
			continue
		}
		must(t, err)
		n, err := read(ctx, tx, name)
		must(t, err)
		must(t, tx.Rollback())
		if want := map[string]int64{"fresh": 1, "old": 0}[d.lateBegin]; n != want {
			t.Errorf("after a late Begin the counter reads %d; want %d (%s)", n, want, d.lateBegin)
		}
	}
}
