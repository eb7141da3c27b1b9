package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// holders is how many believe at the same time that they have the lock; a later one has a larger
// token. Each reads the counter, is paused for as long as the others like, and writes one more than
// it has read.
const holders = 3

// The results of a check at the write in all the orders. docs/fencing.md has these figures.
const (
	allOrders   = 90
	lossyOrders = 42
	lostUpdates = 50
)

// testInterleavings runs every order of the holders' reads and writes, with Begin in each of them.
// The control follows the usual advice instead: compare the token at the write. Each turn is a
// separate transaction, so no turn waits for another.
func testInterleavings(t *testing.T, d *database) {
	orders := interleavings()
	if len(orders) != allOrders {
		t.Fatalf("%d orders; want %d", len(orders), allOrders)
	}
	lossy, lostInAll := 0, 0
	for _, order := range orders {
		accepted, lost := d.runOrder(t, order, d.fenced, true)
		if lost != 0 {
			t.Errorf("%v: Begin has lost %d updates", order, lost)
		}
		if !slices.Contains(accepted, holders-1) {
			t.Errorf("%v: the holder of the lock was refused", order)
		}
		if _, lost = d.runOrder(t, order, d.checked, false); lost != 0 {
			lossy++
			lostInAll += lost
		}
	}
	t.Logf(
		"%d orders of the reads and writes of %d holders: a check at the write loses updates in %d of them, %d in all; Begin loses none",
		len(orders), holders, lossy, lostInAll)
	if lossy != lossyOrders || lostInAll != lostUpdates {
		t.Errorf("the control lost %d updates in %d orders; want %d in %d", lostInAll, lossy, lostUpdates, lossyOrders)
	}
}

// interleavings returns all orders of the holders' turns: a holder's first turn is its read, its
// second its write.
func interleavings() (all [][]int) {
	var turns []int
	var done [holders]int
	var next func()
	next = func() {
		if len(turns) == 2*holders {
			all = append(all, slices.Clone(turns))
			return
		}
		for h := range done {
			if done[h] == 2 {
				continue
			}
			done[h]++
			turns = append(turns, h)
			next()
			turns = turns[:len(turns)-1]
			done[h]--
		}
	}
	next()
	return all
}

// holder believes that it has the lock.
type holder struct {
	token   uint64
	n       int64 // the value that it has read
	turns   int
	stopped bool // it was refused
}

// turn is a holder's read or write; it reports whether the database accepted it.
type turn func(ctx context.Context, h *holder, name string, writes bool) (bool, error)

// fenced runs each turn in a transaction that begins with the token.
func (d *database) fenced(ctx context.Context, h *holder, name string, writes bool) (bool, error) {
	err := d.within(ctx, name, h.token, func(tx *sql.Tx) (err error) {
		if writes {
			return write(ctx, tx, name, h.n+1)
		}
		h.n, err = read(ctx, tx, name)
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		return false, nil
	}
	return err == nil, err
}

// checked compares the token at the write.
func (d *database) checked(ctx context.Context, h *holder, name string, writes bool) (bool, error) {
	if !writes {
		var err error
		h.n, err = read(ctx, d.db, name)
		return err == nil, err
	}
	done, err := d.db.ExecContext(ctx,
		q(`UPDATE counter SET n = ?, token = ? WHERE name = ? AND token <= ?`, h.n+1, h.token, name, h.token))
	if err != nil {
		return false, err
	}
	rows, err := done.RowsAffected() // 0 or 1 with clientFoundRows as well: n or token changes
	return rows == 1, err
}

// runOrder runs the holders' turns. It returns whose writes were accepted, and how many of them are
// missing from the counter.
func (d *database) runOrder(t *testing.T, order []int, do turn, strict bool) (accepted []int, lost int) {
	t.Helper()
	ctx := testContext(t)
	name := d.counter(t)
	var all [holders]holder
	seen := -1 // the latest holder that was accepted
	for _, i := range order {
		h := &all[i]
		h.token = uint64(i + 1)
		h.turns++
		if h.stopped {
			continue
		}
		ok, err := do(ctx, h, name, h.turns == 2)
		must(t, err)
		if strict && ok != (i >= seen) {
			t.Errorf("%v: turn %d of holder %d, after holder %d: accepted: %v", order, h.turns, i, seen, ok)
		}
		h.stopped = !ok
		if ok {
			seen = max(seen, i)
		}
		if ok && h.turns == 2 {
			accepted = append(accepted, i)
		}
	}
	return accepted, len(accepted) - int(d.value(t, name))
}
