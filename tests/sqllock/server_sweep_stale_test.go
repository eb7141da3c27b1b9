package sqllock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// sweptByAnother sweeps a name whose token is ahead of the clock. Tokens still grow at another open
// Server, which has not swept and so not read the floor again.
func sweptByAnother(t *testing.T, db *sql.DB, dialect func() sqllock.Dialect) {
	ctx := t.Context()
	for _, text := range []string{"DELETE FROM hf_lock", "UPDATE hf_meta SET floor = 0"} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	open := func() (*sqllock.Server, driver.Session) {
		b := sqllock.New(db, dialect(), nil)
		t.Cleanup(func() { _ = b.Close() })
		s, err := b.Open(ctx, driver.SessionConfig{ID: "a", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return b, s
	}
	sweeper, _ := open()
	_, s := open()
	take := func(id string, mode driver.Mode) driver.Hold {
		t.Helper()
		rep, err := s.Acquire(ctx, &driver.Request{ID: id, Name: "x", Mode: mode, N: 1})
		if err != nil || rep.Token == 0 {
			t.Fatalf("Acquire = %+v, %v", rep, err)
		}
		return driver.Hold{Name: "x", ID: id, Token: rep.Token}
	}
	last := uint64(0)
	for i, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		h := take([]string{"id-1", "id-2"}[i], mode)
		if h.Token <= last {
			t.Fatalf("mode %d: token %d after %d", mode, h.Token, last)
		}
		if err := s.Release(ctx, h, 0); err != nil {
			t.Fatal(err)
		}
		// The clock was a month ahead at the grant, and was corrected. Nobody has used the name for
		// two days.
		const day = 24 * time.Hour
		last = h.Token + uint64((30 * day).Microseconds())
		for _, text := range []string{"token = token + 2592000000000", "at = at - 172800000000"} {
			if _, err := db.ExecContext(ctx, "UPDATE hf_lock SET "+text); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := hook.SQLSweep(ctx, sweeper, nil, day); err != nil {
			t.Fatal(err)
		}
	}
	if h := take("id-3", driver.Exclusive); h.Token <= last {
		t.Errorf("token %d after %d", h.Token, last)
	}
}
