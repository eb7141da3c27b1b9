package sqllock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

// Histories have a table of their own, hf_history, which no statement about a lock touches. It has no
// part in the version of the tables: clients of a release without histories work with it, and locks
// work without it. The number seq orders the entries of a name; clocks may be set back.

// historyLane is the name of all histories at the gate; no lock has it. So statements about histories
// that wait for a locked table use few connections, and calls for locks pass them.
const historyLane = "\xff"

// AddHistory implements [driver.Backend]. The entry is committed before the oldest are dropped: of
// several clients that add at once, the last sees the entries of all.
func (b *Server) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(text))
	begin, end := b.d.InsertNew()
	add := b.text(begin + " INTO hf_history (name, digest, entry, at) VALUES (?, ?, ?, {now})" + end)
	err := b.with(ctx, historyLane, func(ctx context.Context) error {
		err := b.single(ctx, b.onPool, func(ctx context.Context, q Querier) error {
			_, err := q.Exec(ctx, add, []byte(name), digest[:], []byte(text))
			return err
		})
		if err != nil {
			return err
		}
		return b.trimHistory(ctx, name, keep)
	})
	return historyFault(err)
}

// trimHistory drops the oldest entries of name until keep are left. It reads first: most calls need
// drop nothing, or one entry, and the read locks none.
func (b *Server) trimHistory(ctx context.Context, name string, keep int) error {
	find := b.text(fmt.Sprintf("SELECT seq FROM hf_history WHERE name = ? ORDER BY seq DESC LIMIT 1 OFFSET %d", keep))
	drop := b.text("DELETE FROM hf_history WHERE name = ? AND seq <= ?")
	last := int64(-1) // the newest entry to drop
	err := b.queryPool(ctx, find, []any{[]byte(name)}, func(row *sql.Rows) error { return row.Scan(&last) })
	if err != nil || last < 0 {
		return err
	}
	return b.single(ctx, b.onPool, func(ctx context.Context, q Querier) error {
		_, err := q.Exec(ctx, drop, []byte(name), last)
		return err
	})
}

// History implements [driver.Backend]: one statement, by the key.
func (b *Server) History(ctx context.Context, name string) (list []driver.Entry, err error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	text := b.text(fmt.Sprintf("SELECT entry, at, {now} FROM hf_history WHERE name = ? ORDER BY seq DESC LIMIT %d",
		driver.MaxHistory))
	err = b.with(ctx, historyLane, func(ctx context.Context) error {
		list = nil // an attempt may have failed half-way
		return b.queryPool(ctx, text, []any{[]byte(name)}, func(row *sql.Rows) error {
			var entry []byte
			var at, now int64
			if err := row.Scan(&entry, &at, &now); err != nil {
				return damagedHistory(name, err)
			}
			if len(entry) == 0 || len(entry) > driver.MaxEntry || !utf8.Valid(entry) {
				return damagedHistory(name, fmt.Errorf("an entry is no text of 1 to %d bytes: %.60q", driver.MaxEntry, entry))
			}
			list = append(list, driver.Entry{Text: string(entry), Age: max(0, ofMicros(now-at))})
			return nil
		})
	})
	if err != nil {
		return nil, historyFault(err)
	}
	slices.Reverse(list)
	return list, nil
}

func damagedHistory(name string, err error) error {
	return fmt.Errorf("%w: table hf_history, name %q: %w", driver.ErrDamaged, name, err)
}

// queryPool runs a query on the pool, again after conflicts with other transactions: a server may end a
// reader, too, under a pool's isolation level.
func (b *Server) queryPool(ctx context.Context, text string, args []any, do func(*sql.Rows) error) error {
	for try := 1; ; try++ {
		err := b.onPool(ctx, func(ctx context.Context, l sqlConn) error {
			return b.each(ctx, b.on(l).Prepared(), text, args, do)
		})
		if !errors.Is(err, errAgain) || try >= hopeful {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// historyFault says what to do if there is no table.
func historyFault(err error) error {
	switch {
	case errors.Is(err, errNoTables):
		return fmt.Errorf("%w: the table hf_history does not exist, or is not holdfast's; create it with Init, or "+
			"\"holdfast init\"; locks work without it", driver.ErrRefused)
	case errors.Is(err, errDenied):
		return fmt.Errorf("%w; a database of an earlier release has no table hf_history: run Init, or \"holdfast init\"; "+
			"locks work without it", err)
	}
	return err
}

// WhyMissing implements [driver.Backend]. holdfast deletes no row in use, so somebody else did. If no
// row is left at all, the table may also have been emptied, or restored.
func (b *Server) WhyMissing(ctx context.Context, name string, _ time.Duration) (driver.Cause, error) {
	if err := cmp.Or(driver.CheckName(name), b.ready(ctx)); err != nil {
		return driver.CauseUnknown, unlessRefused(err)
	}
	others := false
	err := b.read(ctx, func(ctx context.Context, l sqlConn) error {
		return b.each(ctx, b.on(l), b.text("SELECT 1 FROM hf_lock WHERE name <> ? LIMIT 1"), []any{[]byte(name)},
			func(*sql.Rows) error {
				others = true
				return nil
			})
	})
	if err != nil || !others {
		return driver.CauseUnknown, unlessRefused(err)
	}
	return driver.CauseDeleted, nil
}

// unlessRefused returns nil for the refusal of a server: the cause stays unknown.
func unlessRefused(err error) error {
	if errors.Is(err, driver.ErrRefused) {
		return nil
	}
	return err
}

// historyStep and historySteps bound the work of one sweep.
const (
	historyStep  = 500
	historySteps = 10
)

// sweepHistories deletes histories whose last entry is older than life: of the next names after
// cursor. It returns where it stopped; nil: at the end.
func (b *Server) sweepHistories(ctx context.Context, cursor []byte, life time.Duration) (next []byte, err error) {
	latest := b.text(fmt.Sprintf("SELECT h.name, h.seq, h.at, {now} FROM (SELECT name, MAX(seq) AS seq FROM hf_history"+
		" WHERE name >= ? GROUP BY name ORDER BY name LIMIT %d) AS l JOIN hf_history AS h ON h.name = l.name AND h.seq = l.seq"+
		" ORDER BY h.name", historyStep))
	drop := b.text("DELETE FROM hf_history WHERE name = ? AND seq <= ?")
	for range historySteps {
		type history struct {
			name []byte
			seq  int64
		}
		var old []history
		names := 0
		if cursor == nil {
			cursor = []byte{}
		}
		err := b.queryPool(ctx, latest, []any{cursor}, func(row *sql.Rows) error {
			var h history
			var at, now int64
			if err := row.Scan(&h.name, &h.seq, &at, &now); err != nil {
				return err
			}
			names++
			cursor = append(h.name[:len(h.name):len(h.name)], 0) // the least name after it
			if at < now-micros(life) {
				old = append(old, h)
			}
			return nil
		})
		if err != nil {
			return cursor, err
		}
		for _, h := range old { // an entry added meanwhile has a larger number
			err := b.single(ctx, b.onPool, func(ctx context.Context, q Querier) error {
				_, err := q.Exec(ctx, drop, h.name, h.seq)
				return err
			})
			if err != nil {
				return cursor, err
			}
		}
		if names < historyStep {
			return nil, nil
		}
	}
	return cursor, nil
}
