package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// BatchesReportForThemselves renews many leases while another transaction has locked the row of
// one. At first only leases of the same batch may be Unknown, and soon only that one. block locks
// the row of a name until end is called.
func BatchesReportForThemselves(t *testing.T, dialect sqllock.Dialect, db *sql.DB,
	block func(name string) (end func())) {
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	s := open(t, b, "batches")
	defer func() { _ = s.Close(context.Background()) }()
	holds := Take(t, s, "batches", 300, driver.Exclusive)
	states := func(limit time.Duration) (unknown map[int]bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		changes, err := s.Renew(ctx, holds)
		if err != nil {
			t.Fatal(err)
		}
		unknown = map[int]bool{}
		for _, ch := range changes {
			if ch.State != driver.Unknown {
				t.Errorf("%+v", ch)
			}
			unknown[ch.Index] = true
		}
		return unknown
	}
	if n := len(states(time.Minute)); n != 0 {
		t.Fatalf("%d of 300 are not proven, without any fault", n)
	}
	end := block(holds[150].Name) // of the second batch
	unknown := states(20 * time.Second)
	if len(unknown) > 128 || !unknown[150] {
		t.Errorf("%d of 300 are not proven; want one batch at most", len(unknown))
	}
	for range 3 {
		unknown = states(20 * time.Second)
	}
	if len(unknown) != 1 || !unknown[150] {
		t.Errorf("%d of 300 are not proven; want only the one whose row is locked", len(unknown))
	}
	end()
	if n := len(states(time.Minute)); n != 0 {
		t.Errorf("%d of 300 are not proven in the end", n)
	}
}

// Take takes n names.
func Take(t *testing.T, s driver.Session, prefix string, n int, mode driver.Mode) []driver.Hold {
	t.Helper()
	holds := make([]driver.Hold, n)
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := k; i < n; i += 4 {
				r := &driver.Request{ID: fmt.Sprintf("%s-%d", prefix, i), Name: fmt.Sprintf("%s/%d", prefix, i), Mode: mode, N: 1}
				rep, err := s.Acquire(t.Context(), r)
				if err != nil || rep.Token == 0 {
					t.Errorf("%q: %+v, %v", r.Name, rep, err)
				}
				holds[i] = driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
			}
		})
	}
	all.Wait()
	return holds
}

// ManyLeases renews many leases of each kind repeatedly, 10,000 in the deep run, each time within
// the exchange that a TTL of 15 s allows.
func ManyLeases(t *testing.T, open func() *sql.DB, dialect func() sqllock.Dialect) {
	db := open()
	db.SetMaxIdleConns(8)
	b := sqllock.New(db, dialect(), nil)
	defer func() { _ = b.Close() }()
	s, err := b.Open(t.Context(), driver.SessionConfig{ID: "many", TTL: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	n := testenv.Rounds(400, 10_000)
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		holds := Take(t, s, fmt.Sprint("many", mode), n, mode)
		for range 3 {
			began := time.Now()
			unproven := map[int]bool{0: true}
			for try := 0; len(unproven) > 0 && try < 6; try++ { // a slow machine needs several exchanges
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				changes, err := s.Renew(ctx, holds)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				clear(unproven)
				for _, ch := range changes {
					if ch.State != driver.Unknown {
						t.Fatalf("%+v", ch)
					}
					unproven[ch.Index] = true
				}
			}
			if len(unproven) > 0 {
				t.Fatalf("%d of %d are not proven in six exchanges", len(unproven), n)
			}
			t.Logf("mode %d: %d leases renewed in %v", mode, n, time.Since(began))
		}
	}
}
