package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Schema returns the statements that create the tables, for operators who run them by hand:
// everything that Init does in an empty database.
func Schema(d Dialect) (statements []string) {
	statements = d.HistoryTable()
	for v, step := range d.Migrations() {
		statements = append(append(statements, step...), setVersion(d, v+1)...)
	}
	return statements
}

func setVersion(d Dialect, version int) []string {
	begin, end := d.InsertNew()
	return []string{
		begin + " INTO hf_meta (one, version, floor, swept) VALUES (1, 0, 0, 0)" + end,
		fmt.Sprintf("UPDATE hf_meta SET version = %d WHERE one = 1 AND version < %d", version, version),
	}
}

// Init creates the tables in db's database, or updates those of an earlier version. It needs the
// right to create tables, which New's user does not need. It may run repeatedly and concurrently.
//
// Errors: driver.ErrRefused: the user lacks the right, or the tables have a later version;
// driver.ErrUnavailable, driver.ErrUncertain: run it again.
func Init(ctx context.Context, db *sql.DB, d Dialect) error {
	if err := checkPool(db); err != nil {
		return err
	}
	b := New(db, d, nil)
	defer func() { _ = b.Close() }()
	q := b.on(b.pool)
	have, err := b.version(ctx, q)
	if err != nil && !errors.Is(err, errNoTables) {
		return err
	}
	all := d.Migrations()
	if have > len(all) {
		return tooNew(have, len(all))
	}
	if have == len(all) && b.complete(ctx, q) { // needs no rights
		for _, statement := range d.Rows() {
			_, err := q.Exec(ctx, statement)
			if err = b.fault(err); err != nil && !errors.Is(err, driver.ErrRefused) { // users without the right need not do it
				return fmt.Errorf("inserting missing rows: %w", err)
			}
		}
		return nil
	}
	for _, statement := range Schema(d) { // of every version: a table may have been dropped
		for try := 1; ; try++ {
			_, err := q.Exec(ctx, statement)
			if err = b.faultOf(err, true); err == nil {
				break
			}
			if try == attempts || !errors.Is(err, errAgain) || pause(ctx, try) != nil { // another Init may run
				return fmt.Errorf("creating the tables: %w", err)
			}
		}
	}
	return nil
}

// complete reports whether all tables can be read.
func (b *Server) complete(ctx context.Context, q Querier) bool {
	for _, table := range b.d.Tables() {
		if err := b.each(ctx, q, "SELECT 1 FROM "+table+" WHERE 1 = 0", nil, nil); err != nil {
			return false
		}
	}
	return true
}

var errNoTables = fmt.Errorf("%w: the tables do not exist; create them with Init, or \"holdfast init\"",
	driver.ErrRefused)

func tooNew(have, want int) error {
	return fmt.Errorf("%w: the tables have version %d; this program knows %d: use a later one", driver.ErrRefused, have,
		want)
}

// version reads the version of the tables.
func (b *Server) version(ctx context.Context, q Querier) (version int, err error) {
	found := false
	err = b.each(ctx, q, b.text("SELECT version, floor FROM hf_meta WHERE one = 1"), nil, func(row *sql.Rows) error {
		found = true
		var floor int64
		err := row.Scan(&version, &floor)
		b.floor.Store(max(b.floor.Load(), floor)) // a restore may have brought back an older floor
		return err
	})
	if err == nil && !found {
		err = errNoTables
	}
	return version, err
}

// checkSchema refuses tables of another version.
func (b *Server) checkSchema(ctx context.Context) error {
	have, err := b.version(ctx, b.on(b.pool))
	if err != nil {
		return err
	}
	switch want := len(b.d.Migrations()); {
	case have > want:
		return tooNew(have, want)
	case have < want:
		return fmt.Errorf("%w: the tables have version %d; this program needs %d: run Init, or \"holdfast init\"",
			driver.ErrRefused, have, want)
	}
	return nil
}

// How often the sweep runs, how many rows one step reads, and how long rows must be idle.
const (
	idleEvery = 10 * time.Minute
	idleStep  = 500
	idleAge   = 24 * time.Hour
)

// sweep deletes rows of names unused for a day. One Server at a time does it. A row stays until its
// token is a day behind the clock: other Servers do not know that token, and make the next from the
// clock. The highest token of the deleted rows goes into hf_meta.floor first, and all later tokens
// exceed that floor. Each sweep reads the floor again, long before a clock could have gone back by
// a day.
func (b *Server) sweep() {
	t := time.NewTicker(idleEvery)
	defer t.Stop()
	var cursor []byte // of histories
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
			ctx, cancel := context.WithTimeout(b.ctx, idleEvery/2)
			_ = b.sweepAll(ctx, idleAge) // the next sweep continues
			cursor, _ = b.sweepHistories(ctx, cursor, driver.HistoryLife)
			cancel()
		}
	}
}

// sweepAll checks all rows, unless another Server has recently begun to.
func (b *Server) sweepAll(ctx context.Context, idle time.Duration) error {
	q := b.on(b.pool)
	if _, err := b.version(ctx, q); err != nil { // for the floor
		return err
	}
	res, err := q.Exec(ctx,
		b.text("UPDATE hf_meta SET swept = {now} WHERE one = 1 AND (swept < {now} - ? OR swept > {now})"),
		micros(idleEvery)*9/10)
	if err != nil {
		return b.fault(err)
	}
	if n, err := res.RowsAffected(); n == 0 || err != nil {
		return err
	}
	var cursor []byte
	for first := true; first || cursor != nil; first = false {
		if cursor, err = b.sweepFrom(ctx, cursor, idle); err != nil {
			return err
		}
	}
	return nil
}

// sweepFrom checks the rows after cursor, and returns where it stopped; nil: at the end.
func (b *Server) sweepFrom(ctx context.Context, cursor []byte, idle time.Duration) (next []byte, err error) {
	q := b.on(b.pool)
	if _, err := b.version(ctx, q); err != nil { // for the floor
		return cursor, err
	}
	var names [][]byte
	var last []byte
	var highest, before int64
	rows := 0
	text := b.text(
		fmt.Sprintf(
			"SELECT name, token, at, kind, counter, expires, keep, waiting, more, {now} FROM hf_lock WHERE name > ? ORDER BY name LIMIT %d", idleStep))
	if cursor == nil {
		cursor = []byte{}
	}
	err = b.each(ctx, q, text, []any{cursor}, func(row *sql.Rows) error {
		var name []byte
		var token, at, kind, counter, expires, keep, waiting, now int64
		var more string
		if err := row.Scan(&name, &token, &at, &kind, &counter, &expires, &keep, &waiting, &more, &now); err != nil {
			return err
		}
		rows++
		last, before = name, now-micros(idle)
		if at <= before && token <= before && max(expires, keep) <= before && waiting == 0 && more == "" &&
			kind != int64(driver.Latch) && (kind != int64(driver.Semaphore) || counter == 0) { // a limit that is set stays
			names, highest = append(names, name), max(highest, token)
		}
		return nil
	})
	if err != nil {
		return cursor, err
	}
	if len(names) > 0 {
		raise := b.text("UPDATE hf_meta SET floor = ? WHERE one = 1 AND floor < ?")
		if _, err := q.Exec(ctx, raise, highest, highest); err != nil {
			return cursor, b.fault(err)
		}
		b.floor.Store(max(b.floor.Load(), highest))
	}
	for some := range slices.Chunk(names, rowsAtOnce) {
		n := padded(len(some))
		args := make([]any, 0, n+6)
		for i := range n {
			args = append(args, some[min(i, len(some)-1)])
		}
		drop := b.text("DELETE FROM hf_lock WHERE name IN (" + marks(n) +
			") AND at <= ? AND token <= ? AND expires <= ? AND keep <= ? AND waiting = 0 AND more = '' AND kind <> ? AND (kind <> ? OR counter = 0)")
		if _, err := q.Exec(ctx, drop, append(args, before, before, before, before, int(driver.Latch),
			int(driver.Semaphore))...); err != nil {
			return cursor, b.fault(err)
		}
	}
	if rows < idleStep {
		return nil, nil
	}
	return last, nil
}
