package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// isPlainError checks that err is the database's own, contains text, and is none of the package's.
func isPlainError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("got %v; want an error with %q", err, text)
	}
	for _, e := range []error{fence.ErrRetry, fence.ErrStale, fence.ErrInvalid} {
		if errors.Is(err, e) {
			t.Errorf("%v is %v", err, e)
		}
	}
}

// Texts of drivers that the tests do not link. The linked drivers are tested with real errors.
func TestRetryable(t *testing.T) {
	for _, c := range []struct {
		dialect fence.Dialect
		text    string
		want    bool
	}{
		{fence.SQLite, "database is locked", true},
		{fence.SQLite, "database table is locked: hf_fence", true},
		{fence.SQLite, "sqlite3: database is locked", true},
		{fence.SQLite, "attempt to write a readonly database", false},
		{fence.SQLite, `no such table: "database is locked"`, false},
		{fence.MySQL, "Error 1213: Deadlock found when trying to get lock", true},
		{fence.MySQL, "Error 1205 (HY000): Überschreitung", true},
		{fence.MySQL, "ERROR 1020 (HY000): Record has changed since last read", true},
		{fence.MySQL, "Error 12130 (HY000): no such number", false},
		{fence.MySQL, "Error 1146 (42S02): Table 'Error 1213' doesn't exist", false},
		{fence.MySQL, "invalid connection", false},
		{fence.PostgreSQL, "40001", false}, // the text proves nothing where every driver has the code
		{0, "Error 1213 (40001): Deadlock found", false},
	} {
		bare := errors.New(c.text)
		for _, err := range []error{
			bare,
			fmt.Errorf("selling: %w", fmt.Errorf("commit: %w", bare)),
			errors.Join(errors.New("unrelated"), bare),
			fmt.Errorf("%w, and %w", bare, errors.New("unrelated")),
		} {
			if got := fence.Retryable(c.dialect, err); got != c.want {
				t.Errorf("%q: %v; want %v", err, got, c.want)
			}
		}
		for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
			if err := fmt.Errorf("%w: %w", ended, bare); fence.Retryable(c.dialect, err) {
				t.Errorf("%q: true; want false", err)
			}
		}
	}
	for code, want := range map[int]bool{
		5: true, 6: true, 5 | 1<<8: true, 5 | 2<<8: true, 5 | 3<<8: true, 6 | 1<<8: true, // BUSY and LOCKED, and their kinds
		1: false, 8: false, 19: false, 8 | 5<<8: false,
	} {
		err := fmt.Errorf("upsert: %w", coded(code))
		if got := fence.Retryable(fence.SQLite, err); got != want {
			t.Errorf("code %d: %v; want %v", code, got, want)
		}
	}
	for _, d := range []fence.Dialect{0, fence.MySQL, fence.PostgreSQL, fence.SQLite} {
		if fence.Retryable(d, nil) || fence.Retryable(d, fmt.Errorf("x: %w", fence.ErrStale)) ||
			!fence.Retryable(d, fmt.Errorf("x: %w", fence.ErrRetry)) {
			t.Errorf("dialect %d: wrong about nil or the package's own errors", d)
		}
	}
}

// A resource may have a name like an error.
func testNameLikeAnError(t *testing.T, d *database) {
	ctx := testContext(t)
	for _, resource := range []string{"Error 1213 (40001): Deadlock found", "database is locked", "40001"} {
		must(t, d.touch(ctx, resource, 2))
		err := d.touch(ctx, resource, 1)
		wantErr(t, err, fence.ErrStale)
		if fence.Retryable(d.dialect, err) {
			t.Errorf("%v counts as retryable", err)
		}
	}
}

// coded is an error with a result code of SQLite.
type coded int

func (c coded) Error() string { return fmt.Sprintf("database is locked, or it is not: %d", int(c)) }
func (c coded) Code() int     { return int(c) }
