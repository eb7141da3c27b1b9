package sqllock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// rowsAtOnce bounds how many rows one statement or transaction locks.
const rowsAtOnce = 128

// Renew implements [driver.Session]. It uses the reserved connection, so an application that uses
// up the pool cannot block renewals.
//
// One statement renews many exclusive grants. For the rest, or if fewer rows than expected were
// renewed, Renew reads the rows and writes them back. Each batch reports for itself and gets half
// of the remaining time. After one wait for a locked row, Renew waits for no other: see renewal.
// The least recently tried grants come first, so the next Renew continues where this one stopped.
// Batches of failed grants become smaller, until the locked row is alone.
func (s *serverSession) Renew(ctx context.Context, holds []driver.Hold) (reported []driver.Change, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return nil, nil
	}
	proven := 0
	late := map[int]int{} // retries of a batch of one row
	run := func(queue [][]int, f func(ctx context.Context, batch []int) error) {
		for len(queue) > 0 {
			batch := queue[0]
			queue = queue[1:]
			limited, cancel := half(ctx)
			began := time.Now()
			failed := f(limited, batch)
			cancel()
			if errors.Is(failed, errAgain) && ctx.Err() == nil { // one locked row must not block the other rows
				if parts := byName(holds, batch, func(int) int { return (len(batch) + 7) / 8 }); len(parts) > 1 {
					queue = append(queue, parts...)
					continue
				}
				if late[batch[0]]++; late[batch[0]] < attempts/hopeful && time.Since(began) < RowWait/2 {
					queue = append(queue, batch)
					continue
				}
			}
			s.tried(holds, batch, failed == nil)
			if failed == nil {
				proven += len(batch)
				continue
			}
			err = cmp.Or(err, failed)
			for _, i := range batch {
				reported = append(reported, driver.Change{Index: i, State: driver.Unknown})
			}
		}
	}
	with := &renewal{reserved: s.b.reserved}
	renewRest := func(ctx context.Context, batch []int) error {
		changes, err := s.renewRest(ctx, with, holds, batch)
		reported = append(reported, changes...)
		return err
	}
	alone, rest := s.batches(holds)
	run(alone, func(ctx context.Context, batch []int) error {
		if all, err := s.renewAlone(ctx, with, holds, batch); err != nil || all {
			return err
		}
		return renewRest(ctx, batch)
	})
	run(rest, renewRest)
	if proven == 0 && err != nil {
		return nil, err
	}
	for _, ch := range reported {
		if ch.State == driver.Gone && holds[ch.Index].Token != 0 {
			s.unregister(holds[ch.Index].ID)
		}
	}
	return reported, nil
}

// renewal runs the exchanges of one Renew. If many rows are locked, waiting for each would take
// longer than the other leases last. After one wait in vain, it passes over locked rows.
type renewal struct {
	reserved *reservedConn
	waited   bool
}

func (w *renewal) run(ctx context.Context, f func(ctx context.Context, l sqlConn) error) error {
	why, began := renewing, time.Now()
	if w.waited {
		why = passing
	}
	err := w.reserved.use(ctx, why, f)
	w.waited = w.waited || errors.Is(err, errAgain) && time.Since(began) > RowWait/2
	return err
}

// tries returns how often to try a batch that conflicts with another transaction before splitting
// it.
func (w *renewal) tries() int {
	if w.waited {
		return 1
	}
	return hopeful
}

// half returns ctx with half of its time: one locked row must not use up the time of all.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	const least = 500 * time.Millisecond
	end, limited := ctx.Deadline()
	if left := time.Until(end); limited && left > least {
		return context.WithTimeout(ctx, max(left/2, least))
	}
	return ctx, func() {}
}

// batches splits the indexes of holds into batches: exclusive grants in alone, everything else in
// rest, which never splits a name.
func (s *serverSession) batches(holds []driver.Hold) (alone, rest [][]int) {
	all := make([]int, len(holds))
	known := make([]request, len(holds))
	mine := make([]bool, len(holds))
	s.mu.Lock()
	for i, h := range holds {
		all[i] = i
		known[i], mine[i] = s.live[h.ID]
	}
	s.mu.Unlock()
	slices.SortStableFunc(all, func(i, j int) int { return cmp.Compare(known[i].tried, known[j].tried) })
	var others []int
	var batch []int
	size := 0
	for _, i := range all {
		if !mine[i] || known[i].group || holds[i].Token == 0 || holds[i].Lease != 0 {
			others = append(others, i)
			continue
		}
		if n := known[i].atOnce(); len(batch) == 0 || n != size || len(batch) == size {
			batch, size = nil, n
			alone = append(alone, nil)
		}
		batch = append(batch, i)
		alone[len(alone)-1] = batch
	}
	return alone, byName(holds, others, func(i int) int { return known[i].atOnce() })
}

// atOnce returns how many grants a batch with r may have.
func (r *request) atOnce() int { return max(1, rowsAtOnce>>(3*min(r.failed, 3))) }

// tried records whether holds were renewed.
func (s *serverSession) tried(holds []driver.Hold, batch []int, proven bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewals++
	for _, i := range batch {
		if r, mine := s.live[holds[i].ID]; mine {
			r.tried = s.renewals
			if r.failed++; proven {
				r.failed = 0
			}
			s.live[holds[i].ID] = r
		}
	}
}

// byName splits all into batches that never split a name, in order of first appearance. atOnce
// bounds the names in a batch with a given hold.
func byName(holds []driver.Hold, all []int, atOnce func(i int) int) (batches [][]int) {
	var names []string
	of := map[string][]int{}
	for _, i := range all {
		name := holds[i].Name
		if of[name] == nil {
			names = append(names, name)
		}
		of[name] = append(of[name], i)
	}
	size, n := 0, 0
	for _, name := range names {
		most := atOnce(of[name][0])
		if n == 0 || most != size || n == size {
			batches, size, n = append(batches, nil), most, 0
		}
		n++
		batches[len(batches)-1] = append(batches[len(batches)-1], of[name]...)
	}
	return batches
}

func (s *serverSession) renewAlone(ctx context.Context, with *renewal, holds []driver.Hold, batch []int) (
	all bool, err error) {
	n := padded(len(batch))
	names, ids, tokens := make([]string, n), make([]string, n), make([]int64, n)
	for k := range n {
		h := holds[batch[min(k, len(batch)-1)]]
		names[k], ids[k], tokens[k] = h.Name, h.ID, int64(h.Token)
	}
	renewed := 0
	err = s.b.singleUpTo(ctx, with.tries(), with.run, func(ctx context.Context, q Querier) (err error) {
		renewed, err = s.b.d.Renew(ctx, q, names, ids, tokens, micros(s.ttl))
		return err
	})
	return renewed == len(batch) && err == nil, err
}

func (s *serverSession) renewRest(ctx context.Context, with *renewal, holds []driver.Hold, batch []int) (
	changes []driver.Change, err error) {
	var names []string
	of := map[string][]int{} // a name's holds
	for _, i := range batch {
		name := holds[i].Name
		if of[name] == nil {
			names = append(names, name)
		}
		of[name] = append(of[name], i)
	}
	slices.Sort(names)
	changed := make(map[int]driver.Change, len(batch))
	st := step{names: names, do: func(k int, r *record) error {
		for _, i := range of[names[k]] {
			r.recall(holds[i])
			ch, grants := r.entry.Renew(ofMicros(r.now), holds[i], s.ttl)
			r.grants = append(r.grants, grants...)
			ch.Missing = ch.State == driver.Gone && holds[i].Token != 0 && !r.exists
			changed[i] = ch
		}
		return nil
	}, spoilt: func(k int) {
		for _, i := range of[names[k]] {
			changed[i] = driver.Change{State: driver.Gone}
		}
	}}
	err = s.b.change(ctx, with.run, st)
	if errors.Is(err, driver.ErrDamaged) { // it does not affect other names
		err = nil
	}
	if err != nil {
		return nil, err
	}
	for _, i := range batch {
		if ch := changed[i]; ch.State != 0 {
			ch.Index = i
			changes = append(changes, ch)
		}
	}
	return changes, nil
}
