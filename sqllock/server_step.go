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

// attempts bounds how often something is tried again that another transaction was in the way of, and hopeful how
// often of these without locking the row first.
const (
	attempts = 12
	hopeful  = 4
)

// step is something that happens to names, to each by itself.
type step struct {
	names []string // in the order in which rows are locked by all who lock several; none twice

	// do changes the record of names[i]. It may be called more than once, each time with a fresh one. An
	// error leaves everything as it was, but what time alone has done may be written all the
	// same. It is not called for a record that is damaged: that is an error of its own, and nothing is written.
	do func(i int, r *record) error

	// spoilt is called in its place for a record that is damaged. It may be nil.
	spoilt func(i int)

	// counts is an id that may count a latch down; records then know whether it has.
	counts string
}

// change takes a step and writes back what it has changed. It returns an error of do, if there is one.
//
// Rows are read, and written if they are still as they were read, so that none is locked while we have to be heard of.
// Only who is passed over again and again, or changes two tables at once, locks the row.
func (b *Server) change(ctx context.Context, run runner, st step) error {
	left := make([]int, len(st.names))
	for i := range left {
		left[i] = i
	}
	verdicts := make([]error, len(st.names)) // of the last that do was asked about each
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
		err := run(ctx, func(ctx context.Context, l link) error {
			if lock || try > hopeful && !brief(ctx) {
				var err error
				left, err = b.pessimistic(ctx, l, st, left)
				return err
			}
			missed, locks, err := b.optimistic(ctx, l, st, left)
			if err == nil || errors.Is(err, errAgain) { // else run may repeat it
				left, lock = missed, locks
			}
			return err
		})
		waited := waitedInVain(began, err, len(left) > 0)
		p.note(waited, err == nil && len(left) == 0)
		// Rows that are written together wait together for one that is locked.
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

// errAgain: nothing was done, somebody was in the way.
var errAgain = fmt.Errorf("%w: other transactions were in the way too often", driver.ErrUnavailable)

// waitedInVain reports whether an attempt that began then has waited for a row that somebody has locked for long: the
// server said so, or nothing. missed says that some of what it was to write was not written.
func waitedInVain(began time.Time, err error, missed bool) bool {
	again := errors.Is(err, errAgain) || err == nil && missed
	return time.Since(began) > RowWait/2 && (again || err != nil && !answered(err))
}

// enough reports whether an operation that began then has tried for long enough. Attempts that are brief take no time.
func enough(ctx context.Context, began time.Time) bool {
	return !brief(ctx) || time.Since(began) > RowWait
}

// pauseAfter is pause after an attempt that began then. It says that nothing was done if the next would not be answered
// while somebody waits for that, since the row is locked for long.
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

// optimistic tries a step without locking a row. It returns the names that have changed meanwhile, and whether they have
// to be locked.
func (b *Server) optimistic(ctx context.Context, l link, st step, names []int) (left []int, lock bool, err error) {
	q := b.on(l)
	all, err := b.load(ctx, q, pick(st.names, names), "")
	if err != nil {
		return names, false, err
	}
	var changed []*update
	for k, r := range all {
		v := st.do(names[k], r)
		w := &update{record: r, index: names[k], cols: r.encode()}
		b.add(&w.news, r)
		switch {
		case v != nil && !stands(v):
		case w.cols == r.cols:
			b.tell(&w.news)
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

// update is a record that was changed, and what others hear of that.
type update struct {
	*record
	index int // in the step's names
	cols  columns
	news  news
}

// write writes records that are still as they were read, tells the news of those, and returns the others.
func (b *Server) write(ctx context.Context, q Querier, changed []*update) (missed []int, err error) {
	var together []*update
	for _, w := range changed {
		if w.exists && (len(changed) > 1 || len(w.news.abroad) > 0 && b.d.Transactions().Tells) {
			together = append(together, w)
			continue
		}
		ok, err := b.save(ctx, q, w.record, &w.cols)
		if err != nil && !errors.Is(err, errAgain) {
			return nil, err
		}
		if ok && err == nil {
			b.tell(&w.news)
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
				b.tell(&w.news)
				continue
			}
			missed = append(missed, w.index)
			if err == nil && saved == nil { // it may have been written: those to whom it was granted ask again, too
				b.tell(w.news.vague())
			}
		}
		together = together[n:]
	}
	for _, w := range together {
		missed = append(missed, w.index)
	}
	return missed, err
}

// stands reports whether an error of a step is an answer, beside which time has passed all the same.
func stands(err error) bool {
	for _, s := range []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrInvalid} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// pessimistic takes a step with each row locked in turn, and returns the names that are left, the one in the way last.
func (b *Server) pessimistic(ctx context.Context, l link, st step, names []int) (left []int, err error) {
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

// locked takes a step of one name in a transaction.
func (b *Server) locked(ctx context.Context, l link, st step, i int) error {
	tx, err := b.begin(ctx, l)
	if err != nil {
		return notCommitted(b.fault(err))
	}
	n, missing, err := b.lockedIn(ctx, inTx{tx, b.d}, st, i)
	if n == nil {
		tx.rollback(ctx)
		if missing { // its row has to be there first, so that it can be locked
			_, err := b.save(ctx, b.on(l), &record{name: st.names[i]}, &columns{})
			return cmp.Or(err, errAgain)
		}
		return notCommitted(err)
	}
	if err := tx.commit(ctx); err != nil {
		return b.fault(err)
	}
	b.tell(n)
	return nil
}

// lockedIn returns nil if nothing is to be committed.
func (b *Server) lockedIn(ctx context.Context, q Querier, st step, i int) (n *news, missing bool, err error) {
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
	n = &news{}
	b.add(n, r)
	if len(n.abroad) > 0 {
		if err := b.fault(b.d.Announce(ctx, q, n.abroad)); err != nil {
			return nil, false, err
		}
	}
	return n, false, nil
}

// single runs one statement by itself, again if another transaction was in its way.
func (b *Server) single(ctx context.Context, run runner, f func(ctx context.Context, q Querier) error) error {
	return b.singleUpTo(ctx, attempts, run, f)
}

func (b *Server) singleUpTo(ctx context.Context, most int, run runner, f func(ctx context.Context, q Querier) error) error {
	p, first := passOf(ctx), time.Now()
	for try := 1; ; try++ {
		began := time.Now()
		err := run(ctx, func(ctx context.Context, l link) error { return b.singleOn(ctx, l, f) })
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

func (b *Server) singleOn(ctx context.Context, l link, f func(ctx context.Context, q Querier) error) error {
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

// doubt is about what was asked and not heard of: when it is asked once more, on another connection, the answer may be
// that there is nothing left to do.
type doubt struct {
	began   time.Time // when it was first asked
	unheard bool
	before  bool // what is answered was so before that
}

// of is run, of which d remembers whether an attempt was not heard.
func (d *doubt) of(run runner) runner {
	return func(ctx context.Context, f func(ctx context.Context, l link) error) error {
		return run(ctx, func(ctx context.Context, l link) error {
			if d.began.IsZero() {
				d.began = time.Now()
			}
			err := f(ctx, l)
			if errors.Is(err, driver.ErrUncertain) {
				d.unheard = true
			}
			return err
		})
	}
}

// see notes what the row says about a grant that is to end: if nobody has written it since that was first asked, or a later
// grant is older, no attempt has done anything.
func (d *doubt) see(r *record, token uint64) {
	asked := r.now - micros(time.Since(d.began))
	d.before = !r.exists || r.at < asked || slices.ContainsFunc(r.was.Holds, func(h rule.Hold) bool {
		return h.Token > token && h.Since < ofMicros(asked)
	})
}

// ended is the error of who has ended a grant. That it is not there any more is what the attempt that was not heard has done,
// unless it was so before.
func (d *doubt) ended(err error) error {
	if d.unheard && !d.before && driver.IsOver(err) {
		return nil
	}
	return err
}

// made is the same of who makes what may be there already: nobody knows who has made it.
func (d *doubt) made(made bool, err error) (bool, error) {
	if d.unheard && !made && err == nil {
		err = fmt.Errorf("%w: an attempt was not answered before it was there", driver.ErrUncertain)
	}
	return made && err == nil, err
}
