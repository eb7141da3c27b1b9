package sqllock

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
)

// rowsAtOnce bounds how many rows one statement or transaction locks.
const rowsAtOnce = 128

// Renew implements [driver.Session]. It runs on the connection that is kept, so the
// application cannot keep a lease from being renewed by using up its pool.
//
// The leases of exclusive grants are set in one statement; if fewer rows than expected were there, and for
// everything else, the rows are read and changed in a transaction.
func (s *serverSession) Renew(ctx context.Context, holds []driver.Hold) (news []driver.Change, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return nil, nil
	}
	var alone, rest []int
	s.mu.Lock()
	for i, h := range holds {
		if r, mine := s.live[h.ID]; mine && !r.group && h.Token != 0 {
			alone = append(alone, i)
		} else {
			rest = append(rest, i)
		}
	}
	s.mu.Unlock()
	proven := 0
	err = s.b.kept.use(ctx, func(l link) error {
		news, proven = nil, 0
		for batch := range slices.Chunk(alone, rowsAtOnce) {
			all, err := s.renewAlone(ctx, l, holds, batch)
			if err != nil {
				return err
			}
			if !all {
				rest = append(rest, batch...)
			} else {
				proven += len(batch)
			}
		}
		for _, batch := range byName(holds, rest) {
			changes, err := s.renewRest(ctx, l, holds, batch)
			if err != nil {
				return err
			}
			news = append(news, changes...)
			proven += len(batch)
		}
		return nil
	})
	if err != nil {
		return nil, err // what was proven is proven again by the next attempt
	}
	for _, ch := range news {
		if ch.State == driver.Gone && holds[ch.Index].Token != 0 {
			s.leave(holds[ch.Index].ID)
		}
	}
	return news, nil
}

// byName cuts the holds of all into batches of whole names.
func byName(holds []driver.Hold, all []int) (batches [][]int) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(i, j int) int {
		if holds[i].Name < holds[j].Name {
			return -1
		}
		if holds[i].Name > holds[j].Name {
			return 1
		}
		return 0
	})
	var batch []int
	names := 0
	for k, i := range all {
		if k == 0 || holds[all[k-1]].Name != holds[i].Name {
			if names++; names > rowsAtOnce {
				batches, batch, names = append(batches, batch), nil, 1
			}
		}
		batch = append(batch, i)
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}

func (s *serverSession) renewAlone(ctx context.Context, l link, holds []driver.Hold, batch []int) (all bool, err error) {
	n := padded(len(batch))
	names, ids, tokens := make([]string, n), make([]string, n), make([]int64, n)
	for k := range n {
		h := holds[batch[min(k, len(batch)-1)]]
		names[k], ids[k], tokens[k] = h.Name, h.ID, int64(h.Token)
	}
	for try := 1; ; try++ {
		renewed := 0
		err := s.b.singleOn(ctx, l, func(q Querier) (err error) {
			renewed, err = s.b.d.Renew(ctx, q, names, ids, tokens, micros(s.ttl))
			return err
		})
		if err == nil || try == attempts || !errors.Is(err, errAgain) {
			return renewed == len(batch), err
		}
		if err := pause(ctx, try); err != nil {
			return false, err
		}
	}
}

func (s *serverSession) renewRest(ctx context.Context, l link, holds []driver.Hold, batch []int) (changes []driver.Change, err error) {
	var names []string
	of := map[string][]int{} // the holds of a name
	for _, i := range batch {
		name := holds[i].Name
		if of[name] == nil {
			names = append(names, name)
		}
		of[name] = append(of[name], i)
	}
	changed := make([]driver.Change, len(holds))
	err = s.b.change(ctx, l, step{names: names, do: func(k int, r *record) error {
		for _, i := range of[names[k]] {
			r.recall(holds[i])
			ch, grants := r.entry.Renew(ofMicros(r.now), holds[i].ID, holds[i].Token, s.ttl)
			r.grants = append(r.grants, grants...)
			changed[i] = ch
		}
		return nil
	}})
	for _, i := range batch {
		if changed[i].State != 0 {
			changed[i].Index = i
			changes = append(changes, changed[i])
		}
	}
	return changes, err
}
