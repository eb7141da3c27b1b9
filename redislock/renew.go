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
	renewBatch   = 256 // exclusive grants in one script: a GET and a SET each
	refreshBatch = 64  // other grants and places: up to 13 commands each
)

// Renew runs renew.lua for exclusive grants and refresh.lua for all others, batch by batch in one
// pipeline. A second pipeline runs refresh.lua for the exclusive grants that renew.lua could not
// prove. In a Cluster a batch keeps to one shard. If its slot is moving, its holds are renewed name
// by name. Exclusive grants are renewed singly: each has one key, at one of the two servers.
func (s *session) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	plain, other, err := s.sort(holds)
	if err != nil {
		return nil, err
	}
	x := exchanges{s: s, holds: holds, sent: s.b.now()}
	x.renew(ctx, append(x.batched(plain, renewBatch, true), x.batched(other, refreshBatch, false)...))
	x.renew(ctx, x.batched(x.left, refreshBatch, false))
	s.prune()
	s.pruneSubscriptions()
	if x.failed != nil && x.proven == 0 {
		return nil, x.failed
	}
	return x.changes, nil
}

// sort splits holds into exclusive grants and all others, and marks them as in use.
func (s *session) sort(holds []driver.Hold) (plain, other []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, driver.ErrClosed
	}
	now := s.b.now()
	for i := range holds {
		a, ok := s.requests[holds[i].ID]
		if ok {
			a.seen = now
			a.own = a.own || holds[i].Lease != 0
			s.requests[holds[i].ID] = a
		}
		if holds[i].Token != 0 && !a.group && holds[i].Lease == 0 && s.b.format == nil {
			plain = append(plain, i)
		} else {
			other = append(other, i)
		}
	}
	// Holds of one name stand together, so that refresh.lua reads and writes the name once.
	slices.SortStableFunc(other, func(i, j int) int { return strings.Compare(holds[i].Name, holds[j].Name) })
	return plain, other, nil
}

// batch is what one script renews: the indexes of holds.
type batch struct {
	of    []int
	plain bool
	last  bool // it is not split again
}

// exchanges are the pipelines of one Renew.
type exchanges struct {
	s     *session
	holds []driver.Hold
	sent  time.Duration

	changes []driver.Change
	failed  error
	proven  int   // number of holds with an answer
	left    []int // holds that refresh.lua has to check
}

// batched splits holds into batches, in a Cluster by shard.
func (x *exchanges) batched(of []int, most int, plain bool) (all []batch) {
	parts := [][]int{of}
	if x.s.b.cluster {
		parts = x.parted(of)
	}
	for _, of := range parts {
		for chunk := range slices.Chunk(of, most) {
			all = append(all, batch{of: chunk, plain: plain})
		}
	}
	return all
}

// parted splits holds by the hash tag of their keys.
func (x *exchanges) parted(of []int) (parts [][]int) {
	at := map[string]int{}
	for _, i := range of {
		tag := x.s.b.tagOf(x.holds[i].Name)
		n, known := at[tag]
		if !known {
			n = len(parts)
			at[tag], parts = n, append(parts, nil)
		}
		parts[n] = append(parts[n], i)
	}
	return parts
}

// divided splits a batch by name.
func (x *exchanges) divided(b batch) (all []batch) {
	from := 0
	for i := range b.of {
		if i+1 == len(b.of) || b.plain || x.holds[b.of[i]].Name != x.holds[b.of[i+1]].Name {
			all = append(all, batch{of: b.of[from : i+1], plain: b.plain, last: true})
			from = i + 1
		}
	}
	return all
}

// renew renews batches in one pipeline. Batches that were refused because of a moving slot or a
// damaged record are split, and renewed in a second one.
func (x *exchanges) renew(ctx context.Context, batches []batch) {
	if len(batches) == 0 {
		return
	}
	calls := make([]Call, len(batches))
	for i, b := range batches {
		calls[i] = x.s.renewal(x.holds, b)
	}
	var apart []batch
	for i, r := range x.s.b.sureAll(ctx, x.s.patience, calls, batches[0].last) {
		b := batches[i]
		// A damaged record fails only its own name: the scripts handle that, except for damage they
		// do not foresee.
		if damaged := errors.Is(r.Err, driver.ErrDamaged); (unstable(r.Err) || damaged) && !b.last {
			apart = append(apart, x.divided(b)...)
			continue
		} else if damaged {
			x.damaged(b)
			continue
		}
		x.answered(b, r)
	}
	x.renew(ctx, apart)
}

// damaged reports the holds of b, a batch of one name, as gone.
func (x *exchanges) damaged(b batch) {
	x.proven += len(b.of)
	for _, j := range b.of {
		x.changes = append(x.changes, driver.Change{Index: j, State: driver.Gone})
		if x.holds[j].Token != 0 {
			x.s.ended(x.holds[j].ID, x.holds[j].Token)
		}
	}
}

// answered reads the answer to the renewal of b.
func (x *exchanges) answered(b batch, r Result) {
	short, err := lacking(r.Err)
	if r.Err = err; short != nil {
		x.fails(short)
	}
	if r.Err == nil && (r.Value.Kind != List || !b.plain && len(r.Value.List)%5 != 0) {
		r.Err = strange(r.Value)
	}
	if r.Err != nil {
		x.fails(r.Err)
		for _, j := range b.of {
			x.changes = append(x.changes, driver.Change{Index: j, State: driver.Unknown})
		}
		return
	}
	x.proven += len(b.of)
	if b.plain {
		var left []int
		for _, v := range r.Value.List {
			if v.Int >= 1 && v.Int <= int64(len(b.of)) {
				left = append(left, b.of[v.Int-1])
			}
		}
		x.left = append(x.left, left...)
		x.proven -= len(left)
		if short != nil {
			x.doubt(b.of, left)
			return
		}
		x.s.proves(x.holds, b.of, left, x.sent)
		return
	}
	var reported []int
	for v := r.Value.List; len(v) >= 5; v = v[5:] {
		if v[0].Int < 1 || v[0].Int > int64(len(b.of)) || short != nil && driver.State(v[1].Int) != driver.Gone {
			continue
		}
		reported = append(reported, b.of[v[0].Int-1])
		x.changes = append(x.changes, x.s.change(x.holds, b.of[v[0].Int-1], v))
	}
	if short != nil {
		x.doubt(b.of, reported)
	}
}

// fails records an error. Batches on one connection mostly fail with the same one.
func (x *exchanges) fails(err error) {
	if x.failed == nil || !strings.Contains(x.failed.Error(), err.Error()) {
		x.failed = errors.Join(x.failed, err)
	}
}

// doubt reports the holds of a batch as unproven, except those in but.
func (x *exchanges) doubt(of, but []int) {
	for _, j := range of {
		if !slices.Contains(but, j) {
			x.changes = append(x.changes, driver.Change{Index: j, State: driver.Unknown})
			x.proven--
		}
	}
}

func (s *session) renewal(holds []driver.Hold, b batch) Call {
	keys, args := make([]string, 0, 4*len(b.of)+1), make([]string, 0, len(b.of)+1)
	var last []string
	kinds, script := "lzmt", s.b.scripts.refresh
	if b.plain {
		kinds, script = "l", s.b.scripts.renew
	}
	c := newCall().micros(s.ttl).end().done()
	args = append(args, c.argList()...)
	c.free()
	for _, j := range b.of {
		h := &holds[j]
		c := s.b.keys(h.Name, kinds).padded(min(h.Token, maxToken), 16)
		if b.plain {
			c.counted(h.ID)
		} else {
			c.micros(driver.LeaseWithin(h.Lease, s.ttl)).str(h.ID)
		}
		c.end().done()
		keys, args = append(keys, c.keyList()[:len(kinds)]...), append(args, c.argList()...)
		last = append(last[:0], c.keyList()[len(kinds):]...)
		c.free()
	}
	keys = append(keys, last...) // see Backend.keys
	return Call{script, keys, args}
}

// noRecord in an answer of refresh.lua means that the store has no record of the name; see
// layout.go.
const noRecord = 1

// change reads five numbers of refresh.lua about holds[i].
func (s *session) change(holds []driver.Hold, i int, v []Value) driver.Change {
	c := driver.Change{Index: i, State: driver.State(v[1].Int)}
	switch c.State {
	case driver.Gone:
		c.Missing = holds[i].Token != 0 && v[2].Int == noRecord
		if holds[i].Token != 0 {
			s.ended(holds[i].ID, holds[i].Token)
		}
	case driver.Granted:
		c.Token = uint64(v[2].Int)
		s.holds(holds[i].ID, c.Token, 0)
	case driver.Waiting:
		c.Retry, c.Ahead = micros(v[3].Int), int(max(v[4].Int, 0))
	}
	return c
}

// prune forgets requests that were neither renewed nor ended for long, for instance because the
// store was away. They have expired there.
func (s *session) prune() {
	const slack = time.Minute
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.b.now()
	if now-s.pruned < s.ttl+slack {
		return
	}
	s.pruned = now
	for id, a := range s.requests {
		if now-a.seen > 3*s.ttl+slack {
			delete(s.requests, id)
		}
	}
	// The network may deliver a cancellation however late. Its limit is an old token by now, so it costs
	// nothing to apply it to all requests.
	for id, u := range s.undoing {
		if u.n == 0 && now-u.seen > 3*s.ttl+slack {
			s.forgotten = max(s.forgotten, u.limit)
			delete(s.undoing, id)
		}
	}
}

// pruneSubscriptions ends subscriptions that nothing uses.
func (s *session) pruneSubscriptions() {
	if s.b.format != nil {
		s.announced.prune()
	}
	if !s.b.cluster {
		return
	}
	busy := map[string]bool{}
	s.mu.Lock()
	for _, a := range s.requests {
		if a.waits || a.token == 0 || a.calls {
			busy[s.b.tagOf(a.name)] = true
		}
	}
	s.mu.Unlock()
	s.subscriptions.prune(busy, s.b.now())
}
