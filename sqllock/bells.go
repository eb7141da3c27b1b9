package sqllock

import (
	"bytes"
	"strconv"
	"sync"
)

// bells are the requests of one session that wait, and the channels they are woken
// through. Whoever rings never blocks.
type bells struct {
	mu    sync.Mutex
	by    map[string]*waiter // request id -> waiter
	names map[string]int     // how many wait for a name
}

type waiter struct {
	name      string
	wake      chan uint64 // holds one value
	after     uint64      // tokens up to this one are of an earlier life of the request
	parked    bool        // the store has answered that it waits
	early     []uint64    // what rang before that
	cancelled bool        // Cancel came while Acquire was under way
	latch     bool        // it awaits a latch
	group     bool        // it may share the name
	told      uint64      // the last grant that it was told of
	hint      string      // what it was last told to ask again for, where that is looked up
}

func newBells() *bells {
	return &bells{by: map[string]*waiter{}, names: map[string]int{}}
}

// begin registers a request before the store is asked, so that no grant is missed.
func (b *bells) begin(id, name string) *waiter {
	w := &waiter{name: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(id)
	b.by[id] = w
	return w
}

// beginKind is begin for one that awaits a latch, or may share the name.
func (b *bells) beginKind(id, name string, latch, group bool) *waiter {
	w := b.begin(id, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	w.latch, w.group = latch, group
	return w
}

// park turns w into a waiter. Grants up to token after are older than its place.
func (b *bells) park(w *waiter, after uint64) <-chan uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.wake, w.after, w.parked = make(chan uint64, 1), after, true
	if !w.cancelled {
		b.names[w.name]++
	}
	for _, token := range w.early {
		w.put(token)
	}
	w.early = nil
	return w.wake
}

// end forgets w, if it is still the one that stands for id.
func (b *bells) end(id string, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[id] == w {
		b.remove(id)
	}
}

// cancel forgets the request, also for an Acquire that is still under way.
func (b *bells) cancel(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(id)
}

func (b *bells) remove(id string) {
	w := b.by[id]
	if w == nil {
		return
	}
	w.cancelled = true
	delete(b.by, id)
	if w.parked {
		if b.names[w.name]--; b.names[w.name] == 0 {
			delete(b.names, w.name)
		}
	}
}

func (b *bells) isCancelled(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.cancelled
}

// ring hands token to the request, if it waits here; 0 means ask again.
func (b *bells) ring(id string, token uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.by[id]
	switch {
	case w == nil:
	case !w.parked:
		w.early = append(w.early, token)
	default:
		w.put(token)
	}
}

// put replaces what has not been fetched: a grant says more than a hint.
func (w *waiter) put(token uint64) {
	if token != 0 {
		if token <= w.after || token == w.told { // out of date, or no news
			return
		}
		w.told = token
	}
	select {
	case w.wake <- token:
		return
	default:
	}
	if token == 0 {
		return
	}
	select {
	case <-w.wake:
	default:
	}
	select {
	case w.wake <- token:
	default:
	}
}

// waiting returns the names that somebody waits for, at most limit of them.
func (b *bells) waiting(limit int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, 0, min(limit, len(b.names)))
	for name := range b.names { // in random order, so that each has its turn
		if len(names) == limit {
			break
		}
		names = append(names, name)
	}
	return names
}

// pending returns those who wait or are about to, by name, unless they have been told of a grant.
func (b *bells) pending() map[string]Waiters {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := map[string]Waiters{}
	for id, w := range b.by {
		if w.told != 0 {
			continue
		}
		of := by[w.name]
		switch {
		case w.latch:
			of.Latch = append(of.Latch, id)
		case w.group:
			of.Group = append(of.Group, id)
		default:
			of.Alone = append(of.Alone, id)
		}
		by[w.name] = of
	}
	return by
}

// remind has the request ask again, unless it has been told for the same reason before.
func (b *bells) remind(id, reason string) {
	b.mu.Lock()
	w := b.by[id]
	told := w == nil || w.hint == reason
	if !told {
		w.hint = reason
	}
	b.mu.Unlock()
	if !told {
		b.ring(id, 0)
	}
}

// A datagram has a line for each grant: the request's id, a space, the token in decimal.

func appendLine(msg []byte, id string, token uint64) []byte {
	msg = append(msg, id...)
	msg = append(msg, ' ')
	msg = strconv.AppendUint(msg, token, 10)
	return append(msg, '\n')
}

// parseDatagram calls do for every line of msg that makes sense and skips the others: a
// lost wake-up costs time, a wrong one could cost the lock.
func parseDatagram(msg []byte, do func(id string, token uint64)) {
	for line := range bytes.Lines(msg) {
		line, complete := bytes.CutSuffix(line, []byte("\n"))
		i := bytes.LastIndexByte(line, ' ')
		if !complete || i <= 0 || len(line)-i > 21 {
			continue
		}
		if token, err := strconv.ParseUint(string(line[i+1:]), 10, 64); err == nil {
			do(string(line[:i]), token)
		}
	}
}
