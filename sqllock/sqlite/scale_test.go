package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// quickest returns the shortest duration of do, which other load disturbs least. It stops when that
// is at most enough.
func quickest(tries int, enough time.Duration, do func() time.Duration) time.Duration {
	best := time.Hour
	for range tries {
		if best = min(best, do()); best <= enough {
			break
		}
	}
	return best
}

// countUp begins a statement with a table of the numbers from 1 to the first argument.
const countUp = `WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < ?1) `

// TestSQLiteCostIsFlat compares the cost of a hand-over with 20 and with 5,000 waiters, and of a
// permit with 10 and with 10,000 holders. All but the first are copies of its row.
func TestSQLiteCostIsFlat(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s := openTestSession(t, b, time.Hour)
	ctx := context.Background()
	timed := func(do func()) time.Duration {
		start := time.Now()
		do()
		return time.Since(start)
	}
	handOver := func(n int) func() time.Duration {
		name := fmt.Sprint("line", n)
		granted(t, s, exclusive(name))
		queued(t, s, exclusive(name))
		execOn(t, b.st, countUp+`INSERT INTO place SELECT name, seq + i, id || '-' || i, session, mode, n, since, deadline, minhold, info
			FROM place, number WHERE name = ?2`, n-1, []byte(name))
		execOn(t, b.st, `UPDATE lock SET waiting = waiting + ?1, seq = seq + ?1 WHERE name = ?2`, n-1, []byte(name))
		checkSums(t, b)
		return func() time.Duration {
			rec, err := b.Inspect(ctx, name)
			must(t, err)
			h := driver.Hold{Name: name, ID: rec.Holders[0].ID, Token: rec.Holders[0].Token}
			return timed(func() { must(t, s.Release(ctx, h, 0)) })
		}
	}
	permit := func(n int) func() time.Duration {
		name := fmt.Sprint("sem", n)
		granted(t, s, permits(name, 1, 20_000))
		execOn(t, b.st, countUp+`INSERT INTO hold SELECT name, token + i, id || '-' || i, session, mode, n, since, expires, keep, kept, info
			FROM hold, number WHERE name = ?2`, n-1, []byte(name))
		execOn(t, b.st, `UPDATE lock SET holders = holders + ?1, used = used + ?1, token = token + ?1 WHERE name = ?2`, n-1,
			[]byte(name))
		checkSums(t, b)
		return func() time.Duration {
			req := permits(name, 1, 20_000)
			return timed(func() { must(t, s.Release(ctx, granted(t, s, req), 0)) })
		}
	}
	for _, c := range []struct {
		what      string
		do        func(n int) func() time.Duration
		few, many int
	}{{"hand-over", handOver, 20, 5000}, {"permit", permit, 10, 10_000}} {
		little := quickest(7, 0, c.do(c.few))
		bound := 4*little + time.Millisecond
		much := quickest(100, bound, c.do(c.many))
		t.Logf("a %s with %d: %v, with %d: %v", c.what, c.few, little, c.many, much)
		if much > bound {
			t.Errorf("a %s costs %v with %d, %v with %d", c.what, much, c.many, little, c.few)
		}
	}
	checkSums(t, b)
	must(t, s.Close(ctx)) // without the limit of a second in the store's Close
}
