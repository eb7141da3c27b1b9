package sqllock

import (
	"bytes"
	"strconv"
	"sync"
)

// waiters are the waiting requests of a session, and their wake channels. notify never blocks.
type waiters struct {
	mu    sync.Mutex
	by    map[string]*waiter // request id -> waiter
	names map[string]int     // number of waiters per name
}

type waiter struct {
	name      string
	wake      chan uint64 // holds one value
	after     uint64      // tokens up to this one belong to an earlier use of the request ID
	parked    bool        // the store has answered that it waits
	early     []uint64    // notifications before that answer
	cancelled bool        // Cancel came while Acquire was under way
	latch     bool        // it awaits a latch
	group     bool        // it may share the name
	notified  uint64      // the last token sent to wake
	hint      string      // the reason of the last call of notifyOnce
}

func newWaiters() *waiters {
	return &waiters{by: map[string]*waiter{}, names: map[string]int{}}
}

// begin registers a request before the store gets it, so that no grant is missed.
func (b *waiters) begin(id, name string) *waiter {
	w := &waiter{name: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(id)
	b.by[id] = w
	return w
}

// beginKind is begin for a request that awaits a latch, or may share the name.
func (b *waiters) beginKind(id, name string, latch, group bool) *waiter {
	w := b.begin(id, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	w.latch, w.group = latch, group
	return w
}

// park makes w a waiter. Tokens up to after are older than its place.
func (b *waiters) park(w *waiter, after uint64) <-chan uint64 {
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

// end removes w, if it is still the waiter of id.
func (b *waiters) end(id string, w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[id] == w {
		b.remove(id)
	}
}

// cancel removes the request, also for an Acquire in progress.
func (b *waiters) cancel(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(id)
}

func (b *waiters) remove(id string) {
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

func (b *waiters) isCancelled(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.cancelled
}

// notify sends token to the request, if it waits here; 0 means ask again.
func (b *waiters) notify(id string, token uint64) {
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

// put replaces an unread value, but never a token by 0.
func (w *waiter) put(token uint64) {
	if token != 0 {
		if token <= w.after || token == w.notified { // out of date, or sent already
			return
		}
		w.notified = token
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

// waiting returns at most limit names that have waiters.
func (b *waiters) waiting(limit int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, 0, min(limit, len(b.names)))
	for name := range b.names { // in random order, so that each name has its turn
		if len(names) == limit {
			break
		}
		names = append(names, name)
	}
	return names
}

// pending returns the requests that wait, or are about to, by name, without those that got a token.
func (b *waiters) pending() map[string]Waiters {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := map[string]Waiters{}
	for id, w := range b.by {
		if w.notified != 0 {
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

// notifyOnce makes the request ask again, unless the last call had the same reason.
func (b *waiters) notifyOnce(id, reason string) {
	b.mu.Lock()
	w := b.by[id]
	same := w == nil || w.hint == reason
	if !same {
		w.hint = reason
	}
	b.mu.Unlock()
	if !same {
		b.notify(id, 0)
	}
}

// A datagram has a line for each grant: request ID, space, token in decimal.

func appendLine(msg []byte, id string, token uint64) []byte {
	msg = append(msg, id...)
	msg = append(msg, ' ')
	msg = strconv.AppendUint(msg, token, 10)
	return append(msg, '\n')
}

// parseDatagram calls do for each valid line of msg and skips the others: a lost wake-up costs
// time, a wrong one could cost the lock.
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
