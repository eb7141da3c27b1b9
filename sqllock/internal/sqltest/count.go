package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// CountsAnyID counts a latch down with IDs of every allowed form, each twice: it counts once.
func CountsAnyID(t *testing.T, dialect sqllock.Dialect, db *sql.DB) {
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	s := open(t, b, "counts")
	defer func() { _ = s.Close(context.Background()) }()
	long := strings.Repeat("é", driver.MaxName/2)
	ids := []string{"a-1", "Linux", "linux", "host-1.example.com", "é", "a b", "'; --", "\\", "\x00",
		"x-" + strings.Repeat("0", 44), long, long[:len(long)-2] + "ö"}
	if err := testenv.Repeated(func() error {
		_, err := s.SetCount(t.Context(), "any id", int64(len(ids))+1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		for range 2 {
			var left int64
			if err := testenv.Repeated(func() (err error) {
				left, err = s.CountDown(t.Context(), "any id", id)
				return err
			}); err != nil || left != int64(len(ids)-i) {
				t.Errorf("%q: %d left, %v; want %d", id, left, err, len(ids)-i)
			}
		}
	}
	for _, id := range []string{"", long + "a"} {
		if _, err := s.CountDown(t.Context(), "any id", id); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("an id of %d bytes: %v; want ErrInvalid", len(id), err)
		}
	}
}
