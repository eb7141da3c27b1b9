package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// testPaused pauses a holder inside its one transaction, between its read and its write, while
// another begins. The other waits until the first has ended, and then sees its writes.
func testPaused(t *testing.T, d *database) {
	for _, known := range []bool{false, true} { // whether the resource has a row already
		for _, c := range []struct {
			what          string
			first, second uint64
			commit        bool  // of the first
			want          error // of the second
		}{
			{"older first", 5, 6, true, nil},
			{"newer first", 6, 5, true, fence.ErrStale},
			{"newer first, with a rollback", 6, 5, false, nil},
			{"the same twice", 5, 5, true, nil},
		} {
			t.Run(fmt.Sprintf("%s/known=%v", c.what, known), func(t *testing.T) {
				ctx := testContext(t)
				name := d.counter(t)
				if known {
					must(t, d.touch(ctx, name, 1))
				}
				first, err := d.begin(ctx, d.db, name, c.first)
				must(t, err)
				n, err := read(ctx, first, name)
				must(t, err)

				second := d.start(ctx, t, name, c.second)

				must(t, write(ctx, first, name, n+1))
				want := int64(0)
				if c.commit {
					must(t, first.Commit())
					want++
				} else {
					must(t, first.Rollback())
				}
				err = <-second
				if !errors.Is(err, c.want) {
					t.Errorf("the second: got %v; want %v", err, c.want)
				}
				if err == nil {
					want++
				}
				if n := d.value(t, name); n != want {
					t.Errorf("the counter is %d; want %d", n, want)
				}
			})
		}
	}
}

// start adds one to the counter in the background. It returns when the transaction waits for
// another one or, in a database without waits, has got ErrRetry.
func (d *database) start(ctx context.Context, t *testing.T, name string, token uint64) <-chan error {
	t.Helper()
	end := make(chan error, 1)
	if d.waits == "" {
		if err := d.add(ctx, name, token); !fence.Retryable(d.dialect, err) {
			t.Fatalf("got %v; want a retryable error", err)
		}
	}
	go func() { end <- d.retry(ctx, func() error { return d.add(ctx, name, token) }) }()
	if d.waits != "" {
		d.awaitWaiter(ctx, t, end)
	}
	return end
}

// testCancelled ends the context of a Begin that waits, and of one that has not begun.
func testCancelled(t *testing.T, d *database) {
	ctx := testContext(t)
	name := d.counter(t)
	dead, cancel := context.WithCancel(ctx)
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: d.level})
	must(t, err)
	cancel()
	err = fence.Begin(dead, tx, d.dialect, name, 1)
	wantErr(t, err, context.Canceled)
	if errors.Is(err, fence.ErrRetry) {
		t.Errorf("%v is ErrRetry although its context has ended", err)
	}
	if d.waits == "" {
		return
	}
	first, err := d.begin(ctx, d.db, name, 1)
	must(t, err)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	second := d.start(waiting, t, name, 2)
	cancel()
	wantErr(t, <-second, context.Canceled)
	must(t, first.Commit())
	must(t, d.touch(ctx, name, 1)) // the cancelled one has left nothing
}
