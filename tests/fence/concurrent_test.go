package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// testConcurrent lets many holders use one counter at the same time, each with its own token. Some
// read and write in one transaction, some in two with a pause between. Every accepted write must be
// in the counter, and no write may follow one with a larger token.
func testConcurrent(t *testing.T, d *database) {
	const workers, rounds = 6, 12
	ctx := testContext(t)
	name := d.counter(t)
	var tokens, accepted, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range rounds {
				token := uint64(tokens.Add(1))
				var err error
				if w%2 == 0 {
					err = d.inOne(ctx, name, token)
				} else {
					err = d.inTwo(ctx, name, token)
				}
				switch {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d accepted, %d refused", accepted.Load(), refused.Load())
	if n := d.value(t, name); n != accepted.Load() || n == 0 {
		t.Errorf("the counter is %d; want %d, the number of accepted writes, and not 0", n, accepted.Load())
	}
	rows, err := d.db.QueryContext(ctx, q(`SELECT n, token FROM log WHERE name = ? ORDER BY n`, name))
	must(t, err)
	defer func() { _ = rows.Close() }()
	var last, latest int64
	for rows.Next() {
		var n, token int64
		must(t, rows.Scan(&n, &token))
		if n != last+1 || token <= latest {
			t.Errorf("write %d with token %d follows write %d with token %d", n, token, last, latest)
		}
		last, latest = n, token
	}
	must(t, rows.Err())
	if last != accepted.Load() {
		t.Errorf("the log has %d writes; want %d", last, accepted.Load())
	}
}

func (d *database) inOne(ctx context.Context, name string, token uint64) error {
	return d.retry(ctx, func() error {
		return d.within(ctx, name, token, func(tx *sql.Tx) error {
			n, err := read(ctx, tx, name)
			if err != nil {
				return err
			}
			return writeLogged(ctx, tx, name, n+1, token)
		})
	})
}

func (d *database) inTwo(ctx context.Context, name string, token uint64) error {
	var n int64
	err := d.retry(ctx, func() error {
		return d.within(ctx, name, token, func(tx *sql.Tx) (err error) {
			n, err = read(ctx, tx, name)
			return err
		})
	})
	if err != nil {
		return err
	}
	return d.retry(ctx, func() error {
		return d.within(ctx, name, token, func(tx *sql.Tx) error { return writeLogged(ctx, tx, name, n+1, token) })
	})
}

// writeLogged writes the counter and an entry of the log.
func writeLogged(ctx context.Context, tx *sql.Tx, name string, n int64, token uint64) error {
	if err := write(ctx, tx, name, n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, q(`INSERT INTO log (name, n, token) VALUES (?, ?, ?)`, name, n, token))
	return err
}
