package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// attempts bounds how often something is tried again that another transaction was in the way of.
const attempts = 12

// step is something that happens to names, all or nothing.
type step struct {
	names []string // none twice

	// do changes the records, which are in the order of names. It may be called more than once, each
	// time with fresh ones. An error leaves everything as it was, but what time alone has
	// done may be written all the same.
	do func([]*record) error

	// counts is an id that may count a latch down; records then know whether it has.
	counts string
}

// change takes a step and writes back what it has changed.
//
// One name is tried first without a transaction, since mostly nobody is in the way: it is read, and
// written if it is still as it was read. Else the rows are locked, in the order of their
// names, so that no two changes wait for each other.
func (b *Server) change(ctx context.Context, l link, st step) error {
	if len(st.names) == 1 && st.counts == "" && !b.circumstances().Serial {
		done, err := b.optimistic(ctx, l, st)
		if done || err != nil && !errors.Is(err, errAgain) {
			return err
		}
	}
	for try := 1; ; try++ {
		err := b.locked(ctx, l, st)
		if err == nil || try == attempts || !errors.Is(err, errAgain) {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// errAgain: nothing was done, somebody was in the way.
var errAgain = fmt.Errorf("%w: other transactions were in the way too often", driver.ErrUnavailable)

func pause(ctx context.Context, try int) error {
	t := time.NewTimer(rand.N(time.Millisecond << min(try, 6)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// optimistic is change of one name in two statements; done false says that it has changed
// meanwhile, or that others have to be told in the same step.
func (b *Server) optimistic(ctx context.Context, l link, st step) (done bool, err error) {
	q := b.on(l)
	all, err := b.load(ctx, q, st.names, "")
	if err != nil {
		return false, err
	}
	r := all[0]
	verdict := st.do(all)
	var n news
	b.add(&n, r)
	c := r.encode()
	switch {
	case c == r.cols:
		b.tell(&n)
		return true, verdict
	case verdict != nil && !stands(verdict):
		return true, verdict
	case len(n.abroad) > 0, r.forgets(&c):
		return false, nil
	}
	ok, err := b.save(ctx, q, r, &c)
	if errors.Is(err, errAgain) {
		return false, nil
	}
	if err != nil || !ok {
		return false, err
	}
	b.tell(&n)
	return true, verdict
}

// stands reports whether an error of f is an answer, beside which time has passed all the same.
func stands(err error) bool {
	for _, s := range []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrInvalid} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// locked is change in a transaction.
func (b *Server) locked(ctx context.Context, l link, st step) error {
	tx, err := l.begin(ctx, b.d.Transactions())
	if err != nil {
		return notCommitted(b.fault(err))
	}
	n, missing, verdict, err := b.lockedIn(ctx, inTx{tx, b.d}, st)
	if err != nil || verdict != nil && !stands(verdict) {
		tx.rollback(ctx)
		if len(missing) > 0 {
			return cmpErr(b.addRows(ctx, b.on(l), missing), errAgain)
		}
		return cmpErr(notCommitted(err), verdict)
	}
	if err := tx.commit(ctx); err != nil {
		return b.fault(err)
	}
	b.tell(n)
	return verdict
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (b *Server) lockedIn(ctx context.Context, q Querier, st step) (n *news, missing []string, verdict, err error) {
	all, err := b.load(ctx, q, st.names, " FOR UPDATE")
	if err != nil {
		return nil, nil, nil, err
	}
	if st.counts != "" {
		if err := b.loadCounted(ctx, q, all[0], st.counts); err != nil {
			return nil, nil, nil, err
		}
	}
	verdict = st.do(all)
	if verdict != nil && !stands(verdict) {
		return nil, nil, verdict, nil
	}
	n = &news{}
	for _, r := range all {
		c := r.encode()
		if c != r.cols {
			if !r.exists { // its row has to be there first, so that it can be locked
				missing = append(missing, r.name)
				continue
			}
			if ok, err := b.save(ctx, q, r, &c); err != nil || !ok {
				return nil, nil, nil, cmpErr(err, errAgain)
			}
		}
		if err := b.saveCounted(ctx, q, r, &c, st.counts); err != nil {
			return nil, nil, nil, err
		}
		b.add(n, r)
	}
	if len(missing) > 0 {
		return nil, missing, nil, errAgain
	}
	if len(n.abroad) > 0 {
		err = b.fault(b.d.Announce(ctx, q, n.abroad))
	}
	return n, nil, verdict, err
}

// load reads records, in the order of names; names without a row are unused. Rows are read, and
// locked, in the order of the bytes of their names.
func (b *Server) load(ctx context.Context, q Querier, names []string, lock string) ([]*record, error) {
	sorted := slices.Sorted(slices.Values(names))
	n := padded(len(names))
	args := make([]any, n)
	for i := range args {
		args[i] = []byte(sorted[min(i, len(sorted)-1)])
	}
	text := b.text("SELECT " + recordColumns + ", {now} FROM hf_lock WHERE name IN (" + marks(n) + ") ORDER BY name" + lock)
	found := make(map[string]*record, len(names))
	err := b.each(ctx, q, text, args, func(row *sql.Rows) error {
		r := &record{floor: b.floor.Load()}
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

// padded rounds the length of a list up, so that there are few different statements.
func padded(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

var writtenColumns = strings.Split("kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more", ", ")

func (r *record) values(c *columns) []any {
	ver := r.ver + 1
	if !r.exists { // the name may have had a row before, of which somebody knows the version
		ver = max(ver, r.now)
	}
	return []any{c.kind, c.limit, c.counter, c.token, ver, r.now, c.hid, c.hsession, c.since, c.expires, c.keep, c.busy(),
		c.kept, c.info, c.waiting, c.due, c.line, c.more}
}

// save writes a record, if it is still as it was read.
func (b *Server) save(ctx context.Context, q Querier, r *record, c *columns) (bool, error) {
	if len(c.line)+len(c.more) > b.room() && c.entrants() > r.cols.entrants() {
		return false, fmt.Errorf("%w: too many hold %q or wait for it: %d", driver.ErrRefused, r.name, r.cols.entrants())
	}
	values := r.values(c)
	var text string
	if r.exists {
		text = "UPDATE hf_lock SET " + strings.Join(writtenColumns, " = ?, ") + " = ? WHERE name = ? AND ver = ?"
		values = append(values, []byte(r.name), r.ver)
	} else {
		begin, end := b.d.InsertNew()
		text = begin + " INTO hf_lock (" + strings.Join(writtenColumns, ", ") + ", name) VALUES (" + marks(len(values)+1) + ")" + end
		values = append(values, []byte(r.name))
	}
	res, err := q.Exec(ctx, b.text(text), values...)
	if err != nil {
		return false, b.fault(err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// room is how long the text of a row may become. Whoever is there already is always written again.
func (b *Server) room() int {
	if room := b.circumstances().Room; room > 0 {
		return min(room, MaxLine)
	}
	return MaxLine
}

// entrants counts who holds, waits and awaits.
func (c *columns) entrants() int {
	n := c.waiting + strings.Count(c.more, "\n")
	if c.hid != "" {
		n++
	}
	return n
}

// addRows adds rows of unused names.
func (b *Server) addRows(ctx context.Context, q Querier, names []string) error {
	for _, name := range names {
		r := &record{name: name}
		if _, err := b.save(ctx, q, r, &columns{}); err != nil {
			return err
		}
	}
	return nil
}

// The ids that have counted a latch down are rows of hf_done until it reaches zero, when every
// further count does nothing anyway.

func (b *Server) loadCounted(ctx context.Context, q Querier, r *record, id string) error {
	return b.each(ctx, q, b.text("SELECT 1 FROM hf_done WHERE name = ? AND id = ?"), []any{[]byte(r.name), id}, func(*sql.Rows) error {
		r.entry.Done[id] = true
		return nil
	})
}

// forgets reports whether r was a latch above zero and is not any more; or is one now and was not,
// and somebody may have deleted its row when it was one before.
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

// single runs one statement by itself, again if another transaction was in its way.
func (b *Server) single(ctx context.Context, f func(q Querier) error) error {
	for try := 1; ; try++ {
		err := b.with(ctx, func(l link) error { return b.singleOn(ctx, l, f) })
		if err == nil || try == attempts || !errors.Is(err, errAgain) {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

func (b *Server) singleOn(ctx context.Context, l link, f func(q Querier) error) error {
	if !b.circumstances().Serial {
		return b.fault(f(b.on(l)))
	}
	tx, err := l.begin(ctx, b.d.Transactions())
	if err != nil {
		return notCommitted(b.fault(err))
	}
	if err := f(inTx{tx, b.d}); err != nil {
		tx.rollback(ctx)
		return notCommitted(b.fault(err))
	}
	return b.fault(tx.commit(ctx))
}
