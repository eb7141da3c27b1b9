package sqlite

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// inspect reads one name. If something there has expired, it writes that first, so that it never
// shows a former holder or waiter.
func (st *store) inspect(ctx context.Context, name string) (driver.Record, error) {
	for {
		rec, stale, err := st.record(ctx, name)
		if err != nil {
			return driver.Record{}, err
		}
		if !stale {
			return rec, nil
		}
		err = st.write(ctx, func(t *tx) error {
			_, err := t.row(name)
			return err
		})
		if err != nil {
			return driver.Record{}, err
		}
	}
}

// list implements driver.Backend.List.
func (st *store) list(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	var recs []driver.Record
	for len(recs) < limit {
		names, err := st.names(ctx, prefix, after, min(limit-len(recs), 256))
		if err != nil || len(names) == 0 {
			return recs, err
		}
		for _, name := range names {
			if !strings.HasPrefix(name, prefix) { // names are sorted: past the prefix
				return recs, nil
			}
			after = name
			rec, err := st.inspect(ctx, name)
			if errors.Is(err, driver.ErrDamaged) {
				recs = append(recs, driver.Record{Name: name, Damaged: strings.TrimPrefix(err.Error(),
					driver.ErrDamaged.Error()+": ")})
				continue
			}
			if err != nil {
				return nil, err
			}
			if rec.Kind != driver.Unused {
				recs = append(recs, rec)
			}
		}
	}
	return recs, nil
}

func (st *store) names(ctx context.Context, prefix, after string, limit int) (names []string, err error) {
	err = st.read(ctx, func() error {
		names = nil
		return st.r.each(qInUse, []any{[]byte(after), []byte(prefix), limit}, func(scan func(...any) error) error {
			var b []byte
			err := scan(&b)
			names = append(names, string(bytes.Clone(b)))
			return err
		})
	})
	return names, err
}

// record reads one name in one snapshot. stale means that something in it has expired.
func (st *store) record(ctx context.Context, name string) (rec driver.Record, stale bool, err error) {
	err = st.snapshot(ctx, func(c *conn, now int64) error {
		r, err := readRow(c, name)
		if err != nil {
			return err
		}
		b := []byte(name)
		if _, err := c.get(qStale, []any{b, now}, &stale); err != nil {
			return err
		}
		stale = stale || r.x.id != "" && r.x.expires <= now || r.waiting > 0 && r.due <= now
		rec = driver.Record{Name: name, Kind: r.kind, Limit: r.limit, Token: uint64(r.token), Waiting: r.waiting}
		if !r.inUse() {
			rec.Kind, rec.Limit = driver.Unused, 0
		}
		if rec.Set = r.set(); r.kind == driver.Latch {
			rec.Count = r.count
		}
		if r.x.id != "" {
			rec.Holders = append(rec.Holders, r.x.describe(now))
		}
		if err := c.each(qHolds, []any{b}, func(scan func(...any) error) error {
			var g grant
			if err := scan(g.fields()...); err != nil {
				return err
			}
			rec.Holders = append(rec.Holders, g.describe(now))
			return g.check()
		}); err != nil {
			return err
		}
		return c.each(qPlaces, []any{b, driver.MaxWaiters}, func(scan func(...any) error) error {
			var w driver.Holder
			var since, deadline int64
			err := scan(&w.ID, &w.Mode, &w.N, &since, &deadline, &w.Info)
			if w.Mode == driver.Exclusive {
				w.N = 1 // the column has the number of its tokens
			}
			w.Age, w.Left = time.Duration(now-since), time.Duration(max(0, deadline-now))
			rec.Waiters = append(rec.Waiters, w)
			return err
		})
	})
	return rec, stale, err
}

// snapshot runs do in a read transaction.
func (st *store) snapshot(ctx context.Context, do func(c *conn, now int64) error) error {
	return st.read(ctx, func() error {
		if err := st.r.start(qRead); err != nil {
			return err
		}
		defer st.r.end() // nothing was written
		return do(st.r, st.env.now())
	})
}

// read runs do, which only reads, on the read connection.
func (st *store) read(ctx context.Context, do func() error) error {
	return st.r.with(ctx, func() error {
		if err := st.present(); err != nil {
			return err
		}
		return do()
	})
}
