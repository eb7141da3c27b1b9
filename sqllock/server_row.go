package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// load returns records in the order of names; names without a row are unused. It reads, and locks,
// rows in byte order of their names.
func (b *Server) load(ctx context.Context, q Querier, names []string, lock string) ([]*record, error) {
	sorted := slices.Sorted(slices.Values(names))
	n := padded(len(names))
	args := make([]any, n)
	for i := range args {
		args[i] = []byte(sorted[min(i, len(sorted)-1)])
	}
	text := b.text("SELECT " + recordColumns + ", {now} FROM hf_lock WHERE name IN (" + marks(n) + ") ORDER BY name" +
		lock)
	found := make(map[string]*record, len(names))
	err := b.each(ctx, q, text, args, func(row *sql.Rows) error {
		r := &record{floor: b.floor.Load(), lossy: b.d.Transactions().Lossy}
		err := r.scan(row)
		found[r.name] = r
		return err
	})
	var now int64
	if err == nil && len(found) < len(names) {
		err = b.each(ctx, q, b.text("SELECT {now}"), nil, func(row *sql.Rows) error { return row.Scan(&now) })
	}
	all := make([]*record, len(names))
	for i, name := range names {
		if all[i] = found[name]; all[i] == nil {
			r := &record{name: name, now: now, floor: b.floor.Load()}
			r.entry = rule.Entry{Mint: r.mint, Done: map[string]bool{}}
			all[i] = r
		}
	}
	return all, err
}

// each calls do for every row of a query.
func (b *Server) each(ctx context.Context, q Querier, text string, args []any, do func(*sql.Rows) error) error {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return b.fault(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := do(rows); err != nil {
			return b.fault(err)
		}
	}
	return b.fault(rows.Err())
}

// padded rounds a list's length up, so that there are few different statements.
func padded(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

var writtenColumns = strings.Split(
	"kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more",
	", ")

func (r *record) values(c *columns) []any {
	ver := r.ver + 1
	if !r.exists { // the name may have had a row before, and someone may know its version
		ver = max(ver, r.now)
	}
	return []any{c.kind, c.limit, c.counter, c.token, ver, r.now, c.hid, c.hsession, c.since, c.expires, c.keep, c.busy(),
		c.kept, c.info, c.waiting, c.due, c.line, c.more}
}

// save writes a record if its row is unchanged since it was read.
func (b *Server) save(ctx context.Context, q Querier, r *record, c *columns) (bool, error) {
	if err := b.fits(r, c); err != nil {
		return false, err
	}
	values := r.values(c)
	var text string
	if r.exists {
		text = updateText
		values = append(values, []byte(r.name), r.ver)
	} else {
		begin, end := b.d.InsertNew()
		text = begin + " INTO hf_lock (" + strings.Join(writtenColumns, ", ") + ", name) VALUES (" + marks(len(values)+1) +
			")" + end
		values = append(values, []byte(r.name))
	}
	res, err := q.Exec(ctx, b.text(text), values...)
	if err != nil {
		return false, b.fault(err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// saveAll saves several existing records and notifies their waiters, in one statement. nil: some
// were written, nobody knows which.
func (b *Server) saveAll(ctx context.Context, q Querier, all []*update) (saved []bool, err error) {
	writes := make([]Write, len(all))
	for i, w := range all {
		if err := b.fits(w.record, &w.cols); err != nil {
			return nil, err
		}
		writes[i] = Write{Name: w.name, Was: w.ver, Values: w.values(&w.cols), Rings: w.wakeups.abroad}
	}
	saved, err = b.d.Save(ctx, q, writes)
	return saved, b.fault(err)
}

// most returns how many of all fit in one statement of the server.
func (b *Server) most(all []*update) (n int) {
	size := 0
	for _, w := range all {
		const others = 1 << 9 // the other columns, without info
		if size += others + len(w.cols.info) + len(w.cols.line) + len(w.cols.more); size > b.maxText() && n > 0 {
			break
		}
		n++
	}
	return n
}

// fits refuses a change that adds a contender to a row that is too long.
func (b *Server) fits(r *record, c *columns) error {
	if len(c.line)+len(c.more) > b.maxText() && c.entrants() > r.cols.entrants() {
		return fmt.Errorf("%w: too many holders and waiters of %q: %d", driver.ErrRefused, r.name, r.cols.entrants())
	}
	return nil
}

// maxText returns the longest text of a row. Rows that only keep or remove contenders are always
// written.
func (b *Server) maxText() int {
	if most := b.circumstances().MaxText; most > 0 {
		return min(most, MaxLine)
	}
	return MaxLine
}

// entrants counts holders, waiters and callers that await the latch.
func (c *columns) entrants() int {
	n := c.waiting + strings.Count(c.more, "\n")
	if c.hid != "" {
		n++
	}
	return n
}

// Rows of hf_done are the IDs that have counted a latch down. They exist until the latch reaches
// zero; further counts then do nothing.

func (b *Server) loadCounted(ctx context.Context, q Querier, r *record, id string) error {
	return b.each(ctx, q, b.text("SELECT 1 FROM hf_done WHERE name = ? AND id = ?"), []any{[]byte(r.name), id},
		func(*sql.Rows) error {
			r.entry.Done[id] = true
			return nil
		})
}

// forgets reports whether r was a latch above zero and is not any more, or the reverse. In the
// latter case rows of an earlier latch may remain, if somebody deleted its record.
func (r *record) forgets(c *columns) bool {
	was := driver.Kind(r.cols.kind) == driver.Latch && r.cols.counter > 0
	is := driver.Kind(c.kind) == driver.Latch && c.counter > 0
	return was != is
}

func (b *Server) saveCounted(ctx context.Context, q Querier, r *record, c *columns, id string) (err error) {
	switch {
	case r.forgets(c):
		_, err = q.Exec(ctx, b.text("DELETE FROM hf_done WHERE name = ?"), []byte(r.name))
	case id != "" && c.counter < r.cols.counter:
		_, err = q.Exec(ctx, b.text("INSERT INTO hf_done (name, id) VALUES (?, ?)"), []byte(r.name), id)
	}
	return b.fault(err)
}
