package quorum

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// query makes one exchange with every server, and returns the answers of a majority or more: it
// waits briefly for late ones.
func query[T any](ctx context.Context, b *Backend, f func(context.Context, *redislock.Member) (T, error)) (
	values []T, of []int, err error) {
	return queryUntil(ctx, b, f, func([]T) bool { return true })
}

// queryUntil is query, except that it waits longer for late servers as long as the answers are not clear.
func queryUntil[T any](ctx context.Context, b *Backend, f func(context.Context, *redislock.Member) (T, error),
	clear func([]T) bool) (values []T, of []int, err error) {
	if b.err != nil {
		return nil, nil, b.err
	}
	type answer struct {
		i   int
		v   T
		err error
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	answers := make(chan answer, len(b.servers))
	for i, s := range b.servers {
		ok := b.background(func() {
			m, err := s.get(ctx)
			var v T
			if err == nil {
				v, err = f(ctx, m)
			}
			if !driver.IsOver(err) {
				err = ofServer(s.Name, err)
			}
			answers <- answer{i, v, err}
		})
		if !ok {
			return nil, nil, driver.ErrClosed
		}
	}
	var errs []error
	var late <-chan time.Time
	var majority time.Time
	missing := slices.Clone(b.servers)
	for len(missing) > 0 {
		select {
		case a := <-answers:
			missing = slices.DeleteFunc(missing, func(s *server) bool { return s == b.servers[a.i] })
			if a.err != nil {
				errs = append(errs, a.err)
			} else {
				b.servers[a.i].waitedFor(true)
				values, of = append(values, a.v), append(of, a.i)
			}
			if len(values) < b.need() {
				break
			}
			if majority.IsZero() {
				majority = time.Now()
			}
			patience := 4 * grace
			if slices.ContainsFunc(missing, (*server).mayAnswer) && !clear(values) {
				patience = decisive
			}
			late = time.After(time.Until(majority.Add(patience)))
		case <-late:
			if time.Since(majority) >= decisive {
				for _, s := range missing {
					s.waitedFor(false)
				}
			}
			return values, of, nil
		case <-caller.Done():
			if len(values) >= b.need() {
				return values, of, nil
			}
			return nil, nil, fmt.Errorf("%w: %d of %d servers have answered: %w", driver.ErrUncertain, len(values),
				len(b.servers), caller.Err())
		}
	}
	switch err := caller.Err(); {
	case len(values) >= b.need():
		return values, of, nil
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", b.verdictOfAll(errs), err)
	}
	return nil, nil, b.verdictOfAll(errs)
}

// Inspect implements driver.Backend. It returns what a majority of the servers knows.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Record, error) {
	records, _, err := queryUntil(ctx, b, func(ctx context.Context, m *redislock.Member) (driver.Record, error) {
		return m.Inspect(ctx, name)
	}, func(r []driver.Record) bool { return len(b.merge(name, r).Partial) == 0 }) // a late one may be free
	if err != nil {
		return driver.Record{}, err
	}
	return b.merge(name, records), nil
}

// merge makes one record from those of several servers.
func (b *Backend) merge(name string, records []driver.Record) driver.Record {
	out := driver.Record{Name: name}
	var holders, places [][]driver.Holder
	waiting := make([]int, 0, len(records))
	var last []uint64
	damaged := 0
	for _, r := range records {
		if r.Damaged != "" {
			damaged++
			out.Damaged = r.Damaged
			continue
		}
		last = append(last, r.Token)
		holders, places = append(holders, r.Holders), append(places, r.Waiters)
		waiting = append(waiting, r.Waiting)
	}
	if damaged > len(b.servers)-b.need() { // no majority can have an undamaged one
		return out
	}
	out.Damaged = ""
	out.Holders = b.common(holders, nil)
	slices.SortFunc(out.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) })
	if slices.Sort(last); len(last) >= b.need() {
		out.Token = last[len(last)-b.need()]
	}
	held := map[string]bool{}
	for _, h := range out.Holders {
		out.Token = max(out.Token, h.Token)
		held[h.ID] = true
	}
	// A request that has some servers and waits at the others counts as a waiter.
	for i := range holders {
		early := slices.DeleteFunc(slices.Clone(holders[i]), func(h driver.Holder) bool { return held[h.ID] || h.Kept })
		for k := range early {
			early[k].Token = 0
		}
		places[i] = append(early, places[i]...)
		waiting[i] += len(early)
	}
	out.Waiters = b.common(places, held)
	if len(out.Holders) == 0 {
		out.Partial, out.FreeIn = b.partial(holders, out.Waiters)
	}
	if len(out.Waiters) > driver.MaxWaiters {
		out.Waiters = out.Waiters[:driver.MaxWaiters]
	}
	out.Waiting = len(out.Waiters)
	if slices.Sort(waiting); len(waiting) >= b.need() && out.Waiting == driver.MaxWaiters {
		out.Waiting = max(out.Waiting, waiting[len(waiting)-b.need()])
	}
	if len(out.Holders)+out.Waiting+len(out.Partial) > 0 {
		out.Kind = driver.Lock
	}
	return out
}

// partial returns the holders of single servers that leave less than a majority to everybody else, and
// driver.Record.FreeIn.
func (b *Backend) partial(holders [][]driver.Holder, waiters []driver.Holder) (
	all []driver.Holder, freeIn time.Duration) {
	waits, at, free := map[string]bool{}, map[string]int{}, 0
	var ends []time.Duration    // one for each server that is not free
	for _, w := range waiters { // it has some servers, and waits at the others
		waits[w.ID] = true
	}
	for _, l := range holders {
		taken, end := false, time.Duration(0)
		for _, h := range l {
			if waits[h.ID] || h.Mode == driver.Shared && len(waiters) > 0 && waiters[0].Mode == driver.Shared {
				continue
			}
			taken, h.Partial, end = true, true, max(end, h.Left)
			if i, known := at[h.ID]; !known {
				at[h.ID], all = len(all), append(all, h)
			} else if h.Left > all[i].Left {
				all[i] = h
			}
		}
		if taken {
			ends = append(ends, end)
		} else {
			free++
		}
	}
	more := b.need() - free
	if more <= 0 {
		return nil, 0
	}
	if slices.Sort(ends); len(ends) > 0 {
		freeIn = ends[min(more, len(ends))-1]
	}
	slices.SortFunc(all, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) })
	return all, freeIn
}

// common returns the holders that are in a majority of the lists, in order of first appearance.
func (b *Backend) common(lists [][]driver.Holder, not map[string]bool) []driver.Holder {
	count := map[string][]driver.Holder{}
	var order []string
	for _, l := range lists {
		seen := map[string]bool{}
		for _, h := range l {
			if seen[h.ID] || not[h.ID] {
				continue
			}
			seen[h.ID] = true
			if count[h.ID] == nil {
				order = append(order, h.ID)
			}
			count[h.ID] = append(count[h.ID], h)
		}
	}
	var out []driver.Holder
	for _, id := range order {
		if same := count[id]; len(same) >= b.need() {
			out = append(out, b.one(same))
		}
	}
	return out
}

// one makes one holder from several servers' answers: the token that most have given, how long a majority has
// had it, and the time that a majority still gives it. The name is kept after a release if a majority says so.
// The holder reads if one server says so: the others do not know its downgrade.
func (b *Backend) one(same []driver.Holder) driver.Holder {
	slices.SortFunc(same, func(a, b driver.Holder) int { return cmp.Compare(b.Age, a.Age) })
	age := same[b.need()-1].Age
	slices.SortFunc(same, func(a, b driver.Holder) int { return cmp.Compare(b.Left, a.Left) })
	h := same[0]
	h.Left, h.Age = same[b.need()-1].Left, age
	most, keep := 0, 0
	for _, x := range same {
		if x.Kept {
			keep++
		}
		if x.Mode == driver.Shared {
			h.Mode = driver.Shared
		}
		n := 0
		for _, y := range same {
			if x.Token == y.Token {
				n++
			}
		}
		if n > most || n == most && x.Token > h.Token {
			h.Token, most = x.Token, n
		}
	}
	h.Kept = keep >= b.need()
	return h
}

// List implements driver.Backend.
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	var out []driver.Record
	for len(out) < limit {
		want := limit - len(out)
		lists, _, err := queryUntil(ctx, b, func(ctx context.Context, m *redislock.Member) ([]driver.Record, error) {
			return m.List(ctx, prefix, after, want)
		}, func(lists [][]driver.Record) bool {
			records, _ := byName(lists, want)
			for name := range records {
				if len(b.merge(name, records[name]).Partial) > 0 { // a late one may be free
					return false
				}
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		records, end := byName(lists, want)
		for _, name := range slices.Sorted(maps.Keys(records)) {
			if r := b.settled(ctx, name, records[name]); (r.Kind != driver.Unused || r.Damaged != "") && len(out) < limit {
				out = append(out, r)
			}
		}
		if end == "" {
			break
		}
		after = end
	}
	return out, nil
}

// byName returns the records of each name. A server lists no free name, and counts as one where it is free. A list of
// most records may lack names after its last one, so the names end there; end is "" if no list is that long.
func byName(lists [][]driver.Record, most int) (records map[string][]driver.Record, end string) {
	for _, l := range lists {
		if len(l) == most && (end == "" || l[most-1].Name < end) {
			end = l[most-1].Name
		}
	}
	records = map[string][]driver.Record{}
	for _, l := range lists {
		for _, r := range l {
			if end == "" || r.Name <= end {
				records[r.Name] = append(records[r.Name], r)
			}
		}
	}
	for name := range records {
		for len(records[name]) < len(lists) {
			records[name] = append(records[name], driver.Record{Name: name})
		}
	}
	return records, end
}

// settled is merge for List. If one server's record is damaged, a majority that knows the name may be
// among the servers that have not answered yet.
func (b *Backend) settled(ctx context.Context, name string, records []driver.Record) driver.Record {
	damaged := slices.IndexFunc(records, func(r driver.Record) bool { return r.Damaged != "" })
	r := b.merge(name, records)
	if damaged < 0 || r.Kind != driver.Unused || r.Damaged != "" {
		return r
	}
	r, err := b.Inspect(ctx, name) // it does not count the damaged answer
	if err != nil {
		return records[damaged]
	}
	return r
}

// Break implements driver.Backend. Every server ends its part of the grant. Break then checks the
// result: the holder may just have extended the grant to servers without it.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	for id := ""; ; {
		records, _, err := query(ctx, b, func(ctx context.Context, m *redislock.Member) (driver.Record, error) {
			return m.Inspect(ctx, name)
		})
		if err != nil {
			return err
		}
		held := false
		for _, h := range b.merge(name, records).Holders {
			if id == "" && h.Token == token || id != "" && h.ID == id {
				id, held = h.ID, true
			}
		}
		switch {
		case id == "":
			return driver.ErrGone
		case !held:
			return nil
		}
		if err := b.breakAt(ctx, name, id); err != nil {
			return err
		}
	}
}

// breakAt ends the servers' parts of the grant of id.
func (b *Backend) breakAt(ctx context.Context, name, id string) error {
	_, _, err := query(ctx, b, func(ctx context.Context, m *redislock.Member) (struct{}, error) {
		r, err := m.Inspect(ctx, name)
		if err != nil {
			return struct{}{}, err
		}
		for _, h := range r.Holders {
			if h.ID == id {
				if err := m.Break(ctx, name, h.Token); err != nil && !driver.IsOver(err) {
					return struct{}{}, err
				}
			}
		}
		return struct{}{}, nil
	})
	return err
}

// RemoveLatch refuses: there are no latches.
func (b *Backend) RemoveLatch(context.Context, string) error {
	return cmp.Or(b.err, noMajority("a latch"))
}

// SetLimit refuses: there are no semaphores.
func (b *Backend) SetLimit(context.Context, string, int) error {
	return cmp.Or(b.err, noMajority("a semaphore"))
}
