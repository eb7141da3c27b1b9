package redislock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

const (
	renewBatch   = 256 // exclusive holds in one script: a GET and a SET each
	refreshBatch = 64  // others: up to 13 commands each
)

// Renew is driver.Session.Renew: exclusive holds by renew.lua, everything else by
// refresh.lua, batch by batch in one pipeline; those that renew.lua did not find simply
// alive by refresh.lua in a second one.
func (s *session) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	plain, other, err := s.sort(holds)
	if err != nil {
		return nil, err
	}
	var changes []driver.Change
	var failed error
	batches := append(batched(plain, renewBatch, true), batched(other, refreshBatch, false)...)
	batches, proven := s.exchange(ctx, holds, batches, &changes, &failed)
	var again []int
	for _, b := range batches { // what is left over from plain
		again = append(again, b.of...)
	}
	_, n := s.exchange(ctx, holds, batched(again, refreshBatch, false), &changes, &failed)
	s.prune()
	if failed != nil && proven+n == 0 {
		return nil, failed
	}
	return changes, nil
}

// sort divides holds: exclusive grants, and all others. It notes that they are in use.
func (s *session) sort(holds []driver.Hold) (plain, other []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, driver.ErrClosed
	}
	now := s.b.now()
	for i := range holds {
		a, ok := s.asks[holds[i].ID]
		if ok {
			a.seen = now
			s.asks[holds[i].ID] = a
		}
		if holds[i].Token != 0 && !a.group {
			plain = append(plain, i)
		} else {
			other = append(other, i)
		}
	}
	// Those of one name beside each other: refresh.lua reads and writes it once.
	slices.SortStableFunc(other, func(i, j int) int { return strings.Compare(holds[i].Name, holds[j].Name) })
	return plain, other, nil
}

// batch is what one script renews: holds by their index.
type batch struct {
	of    []int
	plain bool
}

func batched(of []int, most int, plain bool) (all []batch) {
	for len(of) > 0 {
		n := min(len(of), most)
		all = append(all, batch{of[:n], plain})
		of = of[n:]
	}
	return all
}

// exchange renews batches in one pipeline. It adds to changes, and returns what another
// script has to look at and how many holds were answered for.
func (s *session) exchange(ctx context.Context, holds []driver.Hold, batches []batch, changes *[]driver.Change, failed *error) (rest []batch, proven int) {
	if len(batches) == 0 {
		return nil, 0
	}
	calls := make([]Call, len(batches))
	for i, b := range batches {
		calls[i] = s.renewal(holds, b)
	}
	for i, r := range s.b.conn.RunAll(ctx, calls) {
		b := batches[i]
		if r.Err == nil && r.Value.Kind != List {
			r.Err = strange(r.Value)
		}
		if r.Err == nil && !b.plain && len(r.Value.List)%5 != 0 {
			r.Err = strange(r.Value)
		}
		if r.Err != nil {
			*failed = errors.Join(*failed, r.Err)
			for _, j := range b.of {
				*changes = append(*changes, driver.Change{Index: j, State: driver.Unknown})
			}
			continue
		}
		proven += len(b.of)
		if b.plain {
			var left []int
			for _, v := range r.Value.List {
				if v.Int >= 1 && v.Int <= int64(len(b.of)) {
					left = append(left, b.of[v.Int-1])
				}
			}
			rest = append(rest, batched(left, len(left), false)...)
			proven -= len(left)
			continue
		}
		for v := r.Value.List; len(v) >= 5; v = v[5:] {
			if v[0].Int < 1 || v[0].Int > int64(len(b.of)) {
				continue
			}
			*changes = append(*changes, s.news(holds, b.of[v[0].Int-1], v))
		}
	}
	return rest, proven
}

func (s *session) renewal(holds []driver.Hold, b batch) Call {
	keys, args := make([]string, 0, 4*len(b.of)), make([]string, 0, len(b.of)+1)
	kinds, script := "lzmt", s.b.scripts.refresh
	if b.plain {
		kinds, script = "l", s.b.scripts.renew
	}
	c := newCall().micros(s.ttl).end().done()
	args = append(args, c.argList()...)
	c.free()
	for _, j := range b.of {
		h := &holds[j]
		c := newCall().name(s.b.prefix, h.Name, kinds).padded(min(h.Token, maxToken), 16)
		if b.plain {
			c.counted(h.ID)
		} else {
			c.str(h.ID)
		}
		c.end().done()
		keys, args = append(keys, c.keyList()...), append(args, c.argList()...)
		c.free()
	}
	return Call{script, keys, args}
}

// news reads five numbers of refresh.lua about holds[i].
func (s *session) news(holds []driver.Hold, i int, v []Value) driver.Change {
	c := driver.Change{Index: i, State: driver.State(v[1].Int)}
	switch c.State {
	case driver.Gone:
		if holds[i].Token != 0 {
			s.leave(holds[i].ID)
		}
	case driver.Granted:
		c.Token = uint64(v[2].Int)
		s.holds(holds[i].ID, c.Token)
	case driver.Waiting:
		c.Retry, c.Ahead = micros(v[3].Int), int(max(v[4].Int, 0))
	}
	return c
}

// prune forgets requests that their owner has long stopped renewing and never ended,
// because the store was away: they have run out there.
func (s *session) prune() {
	const slack = time.Minute
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.b.now()
	if now-s.pruned < s.ttl+slack {
		return
	}
	s.pruned = now
	for id, a := range s.asks {
		if now-a.seen > 3*s.ttl+slack {
			delete(s.asks, id)
		}
	}
}
