package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// CancelledLeavesNothing cancels locks at every moment of their way to the server: none leaves a
// grant or a place. Leases last for a minute, so none has expired at the check. HOLDFAST_CANCELS
// sets the number of locks, some hundred by default.
func CancelledLeavesNothing(t *testing.T, open func() *sql.DB, dialect func() sqllock.Dialect) {
	n := testenv.Rounds(160, 600)
	if v := os.Getenv("HOLDFAST_CANCELS"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	db := open()
	db.SetMaxIdleConns(8)
	b := sqllock.New(db, dialect(), nil)
	defer func() { _ = b.Close() }()
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute, Passes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	const workers, round = 8, 5000 // locks between two checks: fewer than fit in a lease's time
	granted, looked := 0, 0
	for left := n; left > 0; left -= round {
		var all sync.WaitGroup
		var mu sync.Mutex
		for w := range workers {
			all.Go(func() {
				for i := range min(left, round) / workers {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Millisecond))
					l, err := c.Mutex(fmt.Sprintf("cancelled/%d", (w+i)%6)).Lock(ctx)
					cancel()
					if err == nil {
						_ = l.Release()
						mu.Lock()
						granted++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		looked++
		for end := time.Now().Add(40 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			list, err := b.List(t.Context(), "cancelled/", "", 10)
			if err == nil && len(list) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after %d locks these are left: %+v, %v", n-left+round, list, err)
			}
		}
	}
	t.Logf("%d locks, %d of them granted in time; checked %d times, nothing was left", n, granted, looked)
}

// ManyRequests locks many names at once, on a pool without a limit. All are granted, and the server
// still has connections for others. connections counts the server's.
func ManyRequests(t *testing.T, db *sql.DB, dialect sqllock.Dialect, connections func() int) {
	const most = 60
	many := testenv.Rounds(4*most, 1000)
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute, Passes: -1})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			l, err := c.Mutex(fmt.Sprintf("many/%d", i)).Lock(t.Context())
			if err == nil {
				err = l.Release()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	over := make(chan struct{})
	go func() { defer close(over); all.Wait() }()
	seen := 0
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-time.After(5 * time.Millisecond):
			seen = max(seen, connections())
		}
	}
	if seen == 0 || seen > most {
		t.Errorf("%d connections at once; want %d at most", seen, most)
	}
	_ = c.Close(context.Background())
}

// ManyCancels cancels many requests for a name at once: they share few changes of its row.
func ManyCancels(t *testing.T, db *sql.DB, dialect sqllock.Dialect) {
	const many = 200
	db.SetMaxIdleConns(8)
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute, Passes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	held, err := c.Mutex("many/x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			r, err := b.Inspect(t.Context(), "many/x")
			if err == nil && r.Waiting == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d wait, %v; want %d", r.Waiting, err, n)
			}
		}
	}
	writes := func() (ver int64) {
		t.Helper()
		if err := db.QueryRow("SELECT max(ver) FROM hf_lock WHERE hid <> ''").Scan(&ver); err != nil {
			t.Fatal(err)
		}
		return ver
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if l, err := c.Mutex("many/x").Lock(ctx); err == nil {
				t.Errorf("granted while another holds it, with token %d", l.Token())
			}
		})
	}
	waiting(many)
	before := writes()
	giveUp()
	all.Wait()
	waiting(0)
	if n := writes() - before; n > many/2 {
		t.Errorf("%d changes of the row, for %d concurrent cancels", n, many)
	} else {
		t.Logf("%d changes of the row, for %d concurrent cancels", n, many)
	}
	if err := held.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
}
