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

// LimitUnanswered sets or removes a limit on the reserved connection, which dies after the server's
// execution and before the answer. The call is repeated on another connection. If another operator
// has set a limit in between, that one stays.
func LimitUnanswered(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn string) {
	for _, limit := range []int{5, 0} {
		for _, between := range []int{8, 0} {
			t.Run(fmt.Sprintf("%d and %d", limit, between), func(t *testing.T) {
				t.Parallel()
				db, b := breakable(t, dialect, admin, dsn)
				other := sqllock.New(admin, dialect(), nil)
				t.Cleanup(func() { _ = other.Close() })
				open(t, b, "s")
				if err := other.SetLimit(t.Context(), t.Name(), 3); err != nil {
					t.Fatal(err)
				}
				rep, err := open(t, other, "other").Acquire(t.Context(), &driver.Request{ID: "id", Name: t.Name(),
					Mode: driver.Permits, N: 1}) // a grant from before the call
				if err != nil || rep.Token == 0 {
					t.Fatalf("Acquire = %+v, %v", rep, err)
				}
				exhaust(t, db.DB)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				db.ArmAt("UPDATE hf_lock", Unanswered)
				set := make(chan error, 1)
				go func() {
					for {
						rec, err := other.Inspect(ctx, t.Name())
						if err == nil && rec.Set && rec.Limit == 3 {
							time.Sleep(5 * time.Millisecond) // no event reports it
							continue
						}
						if between != 0 && err == nil {
							err = other.SetLimit(ctx, t.Name(), between)
						}
						set <- err
						return
					}
				}()
				err = b.SetLimit(ctx, t.Name(), limit)
				if db.Disarm() == "" {
					t.Fatal("every statement was answered")
				}
				if otherErr := <-set; otherErr != nil {
					t.Fatal(otherErr)
				}
				want, last := error(nil), limit
				if between != 0 {
					want, last = driver.ErrUncertain, between
				}
				if !errors.Is(err, want) {
					t.Errorf("SetLimit to %d, whose first run was not answered: %v; want %v", limit, err, want)
				}
				rec, err := other.Inspect(t.Context(), t.Name())
				if err != nil || rec.Set != (last != 0) || rec.Set && rec.Limit != last {
					t.Errorf("Inspect = %+v, %v; want the limit %d", rec, err, last)
				}
			})
		}
	}
}
