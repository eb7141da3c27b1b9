package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// attempts bounds how often an operation is repeated after a conflict with another transaction. The
// first hopeful attempts do not lock the row.
const (
	attempts = 12
	hopeful  = 4
)

// step is a change of several names, each independent of the others.
type step struct {
	names []string // without duplicates, in the order in which all callers lock rows

	// do changes the record of names[i]. It may be called more than once, each time with a fresh
	// record. If do returns an error, its changes are dropped; expiries may still be written. It is
	// not called for a damaged record: change returns that as an error and writes nothing.
	do func(i int, r *record) error

	// spoilt is called instead of do for a damaged record. It may be nil.
	spoilt func(i int)

	// counts is an ID that may count a latch down. If it is set, records contain whether it has
	// counted before.
	counts string
}

// change performs a step and writes its results. It returns an error of do, if there is one.
//
// It reads rows without a lock and writes them only if they are unchanged, so no row is locked
// during a round trip. After repeated conflicts, or if it changes two tables at once, it locks the
// row.
func (b *Server) change(ctx context.Context, run runner, st step) error {
	left := make([]int, len(st.names))
	for i := range left {
		left[i] = i
	}
	verdicts := make([]error, len(st.names)) // the latest result of do for each name
	do := st.do
	st.do = func(i int, r *record) error {
		if verdicts[i] = r.damaged; r.damaged == nil {
			verdicts[i] = do(i, r)
		} else if st.spoilt != nil {
			st.spoilt(i)
		}
		return verdicts[i]
	}
	lock := st.counts != ""
	p, first := passOf(ctx), time.Now()
	for try := 1; ; try++ {
		began := time.Now()
		err := run(ctx, func(ctx context.Context, l sqlConn) error {
			if lock || try > hopeful && !brief(ctx) {
				var err error
				left, err = b.pessimistic(ctx, l, st, left)
				return err
			}
			missed, locks, err := b.optimistic(ctx, l, st, left)
			if err == nil || errors.Is(err, errAgain) { // otherwise run may repeat it
				left, lock = missed, locks
			}
			return err
		})
		waited := waitedInVain(began, err, len(left) > 0)
		p.note(waited, err == nil && len(left) == 0)
		// One statement that writes several rows waits for all if one is locked.
		lock = lock || waited && errors.Is(err, errAgain) && len(left) > 1
		switch {
		case err != nil && !errors.Is(err, errAgain):
			return err
		case len(left) == 0:
			return cmp.Or(verdicts...)
		case try >= attempts && enough(ctx, first):
			return errAgain
		case try > 1 || err != nil:
			if err := pauseAfter(ctx, try, began); err != nil {
				return err
			}
		}
		if err := p.again(ctx); err != nil {
			return err
		}
	}
}

// errAgain: nothing was done, because of a conflict with another transaction.
var errAgain = fmt.Errorf("%w: other transactions were in the way too often; an open one may be taking the name",
	driver.ErrUnavailable)

// waitedInVain reports whether an attempt that began at began has waited long for a locked row. The
// server has reported that, or has not answered. missed means that some rows were not written.
func waitedInVain(began time.Time, err error, missed bool) bool {
	again := errors.Is(err, errAgain) || err == nil && missed
	return time.Since(began) > RowWait/2 && (again || err != nil && !answered(err))
}

// enough reports whether an operation that began at began has tried long enough. Brief attempts
// take almost no time.
func enough(ctx context.Context, began time.Time) bool {
	return !brief(ctx) || time.Since(began) > RowWait
}

// pauseAfter pauses after an attempt that began at began. It returns errAgain if the row is locked
// for long and the caller would give up before the next answer.
func pauseAfter(ctx context.Context, try int, began time.Time) error {
	caller := ctx
	if d, ok := ctx.Value(callerKey{}).(context.Context); ok {
		caller = d
	}
	end, limited := caller.Deadline()
	if caller.Err() != nil || limited && time.Since(began) > RowWait/2 && time.Until(end) < RowWait {
		return errAgain
	}
	return pause(ctx, try)
}

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

// optimistic performs a step without locking rows. It returns the names that changed meanwhile, and
// whether their rows must be locked.
func (b *Server) optimistic(ctx context.Context, l sqlConn, st step, names []int) (left []int, lock bool, err error) {
	q := b.on(l)
	all, err := b.load(ctx, q, pick(st.names, names), "")
	if err != nil {
		return names, false, err
	}
	var changed []*update
	for k, r := range all {
		v := st.do(names[k], r)
		w := &update{record: r, index: names[k], cols: r.encode()}
		b.add(&w.wakeups, r)
		switch {
		case v != nil && !stands(v):
		case w.cols == r.cols:
			b.notify(&w.wakeups)
		case r.forgets(&w.cols):
			left, lock = append(left, w.index), true
		default:
			changed = append(changed, w)
		}
	}
	missed, err := b.write(ctx, q, changed)
	return append(left, missed...), lock, err
}

func pick(names []string, which []int) []string {
	picked := make([]string, len(which))
	for k, i := range which {
		picked[k] = names[i]
	}
	return picked
}

// update is a changed record with its wakeups.
type update struct {
	*record
	index   int // in the step's names
	cols    columns
	wakeups wakeups
}

// write writes records that are unchanged since they were read, sends their wakeups, and returns
// the others.
func (b *Server) write(ctx context.Context, q Querier, changed []*update) (missed []int, err error) {
	var together []*update
	for _, w := range changed {
		if w.exists && (len(changed) > 1 || len(w.wakeups.abroad) > 0 && b.d.Transactions().Tells) {
			together = append(together, w)
			continue
		}
		ok, err := b.save(ctx, q, w.record, &w.cols)
		if err != nil && !errors.Is(err, errAgain) {
			return nil, err
		}
		if ok && err == nil {
			b.notify(&w.wakeups)
		} else {
			missed = append(missed, w.index)
		}
	}
	for len(together) > 0 && err == nil {
		var saved []bool
		n := b.most(together)
		saved, err = b.saveAll(ctx, q, together[:n])
		for k, w := range together[:n] {
			if err == nil && saved != nil && saved[k] {
				b.notify(&w.wakeups)
				continue
			}
			missed = append(missed, w.index)
			if err == nil && saved == nil { // the row may have been written: its new holders must ask again
				b.notify(w.wakeups.vague())
			}
		}
		together = together[n:]
	}
	for _, w := range together {
		missed = append(missed, w.index)
	}
	return missed, err
}

// stands reports whether a step's error is a valid answer. Expiries of that step may still be
// written.
func stands(err error) bool {
	for _, s := range []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrInvalid} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// pessimistic performs a step, locking one row after the other. It returns the names left, the
// conflicting one last.
func (b *Server) pessimistic(ctx context.Context, l sqlConn, st step, names []int) (left []int, err error) {
	for len(names) > 0 && err == nil {
		if err = b.locked(ctx, l, st, names[0]); err == nil {
			names = names[1:]
		}
	}
	if errors.Is(err, errAgain) {
		names = append(slices.Clone(names[1:]), names[0])
	}
	return names, err
}

// locked performs a step on one name in a transaction.
func (b *Server) locked(ctx context.Context, l sqlConn, st step, i int) error {
	tx, err := b.begin(ctx, l)
	if err != nil {
		return notCommitted(b.fault(err))
	}
	n, missing, err := b.lockedIn(ctx, inTx{tx, b.d}, st, i)
	if n == nil {
		tx.rollback(ctx)
		if missing { // the row must exist before it can be locked
			_, err := b.save(ctx, b.on(l), &record{name: st.names[i]}, &columns{})
			return cmp.Or(err, errAgain)
		}
		return notCommitted(err)
	}
	if err := tx.commit(ctx); err != nil {
		return b.fault(err)
	}
	b.notify(n)
	return nil
}

// lockedIn returns nil if there is nothing to commit.
func (b *Server) lockedIn(ctx context.Context, q Querier, st step, i int) (n *wakeups, missing bool, err error) {
	all, err := b.load(ctx, q, st.names[i:i+1], " FOR UPDATE")
	if err != nil {
		return nil, false, err
	}
	r := all[0]
	if st.counts != "" {
		if err := b.loadCounted(ctx, q, r, st.counts); err != nil {
			return nil, false, err
		}
	}
	if v := st.do(i, r); v != nil && !stands(v) {
		return nil, false, nil
	}
	c := r.encode()
	if c != r.cols {
		if !r.exists {
			return nil, true, nil
		}
		if ok, err := b.save(ctx, q, r, &c); err != nil || !ok {
			return nil, false, cmp.Or(err, errAgain)
		}
	}
	if err := b.saveCounted(ctx, q, r, &c, st.counts); err != nil {
		return nil, false, err
	}
	n = &wakeups{}
	b.add(n, r)
	if len(n.abroad) > 0 {
		if err := b.fault(b.d.Announce(ctx, q, n.abroad)); err != nil {
			return nil, false, err
		}
	}
	return n, false, nil
}

// single runs one statement, again after conflicts with other transactions.
func (b *Server) single(ctx context.Context, run runner, f func(ctx context.Context, q Querier) error) error {
	return b.singleUpTo(ctx, attempts, run, f)
}

func (b *Server) singleUpTo(ctx context.Context, most int, run runner,
	f func(ctx context.Context, q Querier) error) error {
	p, first := passOf(ctx), time.Now()
	for try := 1; ; try++ {
		began := time.Now()
		err := run(ctx, func(ctx context.Context, l sqlConn) error { return b.singleOn(ctx, l, f) })
		p.note(waitedInVain(began, err, false), err == nil)
		if err == nil || !errors.Is(err, errAgain) || try >= most && enough(ctx, first) {
			return err
		}
		if err := pauseAfter(ctx, try, began); err != nil {
			return err
		}
		if err := p.again(ctx); err != nil {
			return err
		}
	}
}

func (b *Server) singleOn(ctx context.Context, l sqlConn, f func(ctx context.Context, q Querier) error) error {
	if !b.circumstances().Serial {
		return b.fault(f(ctx, b.on(l)))
	}
	tx, err := b.begin(ctx, l)
	if err != nil {
		return notCommitted(b.fault(err))
	}
	if err := f(ctx, inTx{tx, b.d}); err != nil {
		tx.rollback(ctx)
		return notCommitted(b.fault(err))
	}
	return b.fault(tx.commit(ctx))
}

// doubt tracks an operation whose first attempt was not answered. Its repetition, on another
// connection, may find nothing left to do.
type doubt struct {
	began      time.Time // time of the first attempt
	unanswered bool
	before     bool // the result was already so before the first attempt
}

// of returns run, and records whether an attempt was not answered.
func (d *doubt) of(run runner) runner {
	return func(ctx context.Context, f func(ctx context.Context, l sqlConn) error) error {
		return run(ctx, func(ctx context.Context, l sqlConn) error {
			if d.began.IsZero() {
				d.began = time.Now()
			}
			err := f(ctx, l)
			if errors.Is(err, driver.ErrUncertain) {
				d.unanswered = true
			}
			return err
		})
	}
}

// see checks the row of a grant that is to end. No attempt has done anything if nobody wrote the
// row since the first attempt, or if a later grant is older than that.
func (d *doubt) see(r *record, token uint64) {
	asked := r.now - micros(time.Since(d.began))
	d.before = !r.exists || r.at < asked || slices.ContainsFunc(r.was.Holds, func(h rule.Hold) bool {
		return h.Token > token && h.Since < ofMicros(asked)
	})
}

// ended adjusts the error of an operation that ends a grant. If the grant is gone, the unanswered
// attempt has ended it, unless the grant was gone before.
func (d *doubt) ended(err error) error {
	if d.unanswered && !d.before && driver.IsOver(err) {
		return nil
	}
	return err
}

// made adjusts the result of a creation: if the record exists, nobody knows which attempt created
// it.
func (d *doubt) made(made bool, err error) (bool, error) {
	if d.unanswered && !made && err == nil {
		err = fmt.Errorf("%w: an attempt was not answered, and the record exists now", driver.ErrUncertain)
	}
	return made && err == nil, err
}
