package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/holdfast-lock/holdfast/driver"
)

// Inspect implements [driver.Backend].
func (b *Server) Inspect(ctx context.Context, name string) (rec driver.Record, err error) {
	err = b.ask(ctx, name, func(r *record) error {
		r.grants = r.entry.Advance(ofMicros(r.now))
		rec = r.describe()
		return nil
	})
	return rec, err
}

func (r *record) describe() driver.Record {
	if r.damaged != nil {
		return driver.Record{Name: r.name, Damaged: r.damaged.Error()}
	}
	return r.entry.Record(ofMicros(r.now), r.name)
}

// Break implements [driver.Backend].
func (b *Server) Break(ctx context.Context, name string, token uint64) error {
	var d doubt
	return d.ended(b.askBy(ctx, name, d.of(b.run), func(r *record) (err error) {
		d.see(r, token)
		r.grants, err = r.entry.Break(ofMicros(r.now), token)
		return err
	}))
}

// RemoveLatch implements [driver.Backend].
func (b *Server) RemoveLatch(ctx context.Context, name string) error {
	var d doubt
	return d.ended(b.askBy(ctx, name, d.of(b.run), func(r *record) (err error) {
		if d.see(r, 1); d.unanswered && !d.before && r.entry.Kind == driver.Latch {
			return errSetAgain
		}
		r.grants, err = r.entry.RemoveLatch(ofMicros(r.now))
		return err
	}))
}

// errSetAgain: a repeated removal found a latch that somebody has written since the first attempt.
// It may be another latch of the name.
var errSetAgain = fmt.Errorf("%w: an attempt was not answered, and the latch may have been set again since",
	driver.ErrUncertain)

// SetLimit implements [driver.Backend].
func (b *Server) SetLimit(ctx context.Context, name string, limit int) error {
	if err := driver.CheckLimit(limit); err != nil {
		return err
	}
	var d doubt
	err := b.askBy(ctx, name, d.of(b.run), func(r *record) (err error) {
		e := &r.entry
		done := e.Set && e.Limit == limit || limit == 0 && !e.Set
		d.see(r, math.MaxUint64) // a later grant proves nothing about the limit
		if d.unanswered && !d.before && !done {
			return errLimitSetAgain
		}
		r.grants, err = e.SetLimit(ofMicros(r.now), limit)
		return err
	})
	return d.ended(err)
}

// errLimitSetAgain: a repeated SetLimit found that somebody has written the name since the first
// attempt, and that the limit is another one. Another operator may have set or removed it.
var errLimitSetAgain = fmt.Errorf("%w: an attempt was not answered, and the limit may have been changed since",
	driver.ErrUncertain)

// List implements [driver.Backend].
func (b *Server) List(ctx context.Context, prefix, after string, limit int) (list []driver.Record, err error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	const page = 200
	from, past := after, prefix > after
	for len(list) < limit {
		begin := from
		if past { // all names with this prefix, and the prefix itself, come after
			begin = prefix
		}
		where := "name > ?"
		if past {
			where = "name >= ?"
		}
		args := []any{[]byte(begin)}
		if end := pastPrefix(prefix); end != nil {
			where += " AND name < ?"
			args = append(args, end)
		}
		rows := 0
		var due []int // indexes of records whose first waiter can be granted
		err := b.read(ctx, func(ctx context.Context, l sqlConn) error {
			text := b.text(
				fmt.Sprintf(
					"SELECT %s, {now} FROM hf_lock WHERE %s AND (kind <> 0 OR hid <> '' OR line <> '' OR more <> '') ORDER BY name LIMIT %d", recordColumns, where, page))
			return b.each(ctx, b.on(l), text, args, func(row *sql.Rows) error {
				r := &record{}
				if err := r.scan(row); err != nil {
					return err
				}
				rows++
				from, past = r.name, false
				granted := r.entry.Advance(ofMicros(r.now))
				if (r.entry.Used() || r.damaged != nil) && len(list) < limit {
					if len(granted) > 0 {
						due = append(due, len(list))
					}
					list = append(list, r.describe())
				}
				return nil
			})
		})
		for _, i := range due {
			if err == nil {
				list[i], err = b.Inspect(ctx, list[i].Name)
			}
		}
		if err != nil {
			return nil, err
		}
		if rows < page {
			break
		}
	}
	return list, nil
}

// pastPrefix returns the least name after all names with this prefix; nil: there is none.
func pastPrefix(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
