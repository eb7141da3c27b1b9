package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// ReleasedWhenTaken releases a grant that has ended while another client has the lock. The first
// statement's answer is lost. The caller must get an error: not its release has ended the grant.
func ReleasedWhenTaken(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken=%v", taken), func(t *testing.T) {
			db, b := breakable(t, dialect, admin, dsn)
			s := open(t, b, "s")
			other := sqllock.New(admin, dialect(), nil)
			t.Cleanup(func() { _ = other.Close() })
			o := open(t, other, "o")
			rep, err := s.Acquire(t.Context(), &driver.Request{ID: "id", Name: t.Name(), Mode: driver.Exclusive, N: 1})
			if err != nil || rep.Token == 0 {
				t.Fatalf("Acquire = %+v, %v", rep, err)
			}
			if err := other.Break(t.Context(), t.Name(), rep.Token); err != nil {
				t.Fatal(err)
			}
			if taken {
				if rep, err := o.Acquire(t.Context(), &driver.Request{ID: "other", Name: t.Name(), Mode: driver.Exclusive,
					N: 1}); err != nil || rep.Token == 0 {
					t.Fatalf("Acquire = %+v, %v", rep, err)
				}
			}
			exhaust(t, db.DB)
			// The end of the grant must be older than the release, by more than a busy machine stands still
			// between two readings of clocks: see doubt.
			if _, err := admin.ExecContext(t.Context(), "UPDATE hf_lock SET at = at - 3600000000 WHERE name = '"+
				t.Name()+"'"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			db.ArmAt("UPDATE hf_lock", Unanswered)
			err = s.Release(ctx, driver.Hold{Name: t.Name(), ID: "id", Token: rep.Token}, 0)
			if db.Disarm() == "" {
				t.Fatal("every statement was answered")
			}
			if want := map[bool]error{true: driver.ErrTaken, false: driver.ErrGone}[taken]; !errors.Is(err, want) &&
				!errors.Is(err, driver.ErrUncertain) {
				t.Errorf("Release of a grant that had ended: %v; want %v", err, want)
			}
		})
	}
}
