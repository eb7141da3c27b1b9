// Package waiters keeps the requests of a session that wait, and wakes them as driver.Reply.Wake
// promises. A grant may be pushed before the answer that the request waits, twice, late, or while
// the request is being cancelled. A stranger may push, too (R16).
//
// memlock and sqllock use a [Table]. In redislock, zklock and the quorum a request has more state,
// and a push has other effects: replicas confirm it, a watch leads to an exchange, or a server's
// vote changes. They share only the [Slot] and its rules.
//
//	          Begin             Park             a token
//	(unknown) ----> registered ----> waiting ------------> granted --+ another token
//	                     |              |                     |      v
//	                     |              |                     |  disputed
//	                     v              v                     v      v
//	                  cancelled, by Cancel, End, or Begin of the same ID
//
// What Notify does depends on the state:
//
//   - unknown, cancelled: nothing. No wake-up follows a Cancel, and Cancel discards a value that
//     nobody has read: the grant that it reports is no longer on record.
//   - registered: it keeps the push for Park, because only the store's answer says which tokens are
//     of an earlier use of the ID.
//   - waiting: it puts the value into the slot. Tokens up to Park's after are ignored: the store
//     had given them before it answered that the request waits. The first other token is the grant.
//   - granted: the same token and 0 say nothing new. A request gets one grant in one wait, so if
//     another token comes, a stranger has sent one of the two. The slot then has 0: ask the store.
//   - disputed: nothing. The request is about to ask, and begins again.
package waiters

import "sync"

// Slot is the channel that wakes one waiter: it yields a token, or 0 to make the waiter ask the
// store. It has room for one value. Put of a token and Drain need the lock of the Slot's owner, and
// receiving needs none. A nil Slot takes and yields nothing.
type Slot chan uint64

// NewSlot returns an empty slot.
func NewSlot() Slot { return make(Slot, 1) }

// Put leaves v for the waiter, and never blocks. A token replaces a value that nobody has read. 0
// does not: a waiter that asks learns of the grant, but one that has the token need not ask.
func (s Slot) Put(v uint64) {
	if v != 0 {
		s.Drain()
	}
	select {
	case s <- v:
	default:
	}
}

// Drain discards a value that nobody has read.
func (s Slot) Drain() {
	select {
	case <-s:
	default:
	}
}

// Table has the requests of one session, or of several with different request IDs. Its methods may
// be called concurrently and never block.
type Table struct {
	mu    sync.Mutex
	by    map[string]*Waiter // by request ID
	names map[string]int     // how many requests of a name are parked
}

// Waiter is a request from Begin until it is cancelled.
type Waiter struct {
	name  string
	kind  uint8
	state state
	ask   bool      // registered: 0 was pushed
	early [2]uint64 // registered: the largest tokens that were pushed. Two are enough for a dispute
	slot  Slot
	after uint64 // tokens up to this one are of an earlier use of the ID
	token uint64 // granted: the token that was pushed
	hint  string // the reason of the last Ask
}

type state uint8

const (
	registered state = iota
	waiting
	granted
	disputed
	cancelled
)

// NewTable returns an empty table.
func NewTable() *Table { return &Table{by: map[string]*Waiter{}, names: map[string]int{}} }

// Begin registers a request before the store gets it, so that no push is missed. An earlier use of
// the ID is cancelled. The meaning of kind is the caller's.
func (t *Table) Begin(id, name string, kind uint8) *Waiter {
	w := &Waiter{name: name, kind: kind}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(id)
	t.by[id] = w
	return w
}

// Park makes w wait, and returns its channel. after is the latest token of the name in the store's
// answer: w is not granted with it or an earlier one. If w was cancelled, the channel yields
// nothing.
func (t *Table) Park(w *Waiter, after uint64) <-chan uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := NewSlot()
	if w.state != registered {
		return slot
	}
	t.names[w.name]++
	w.state, w.slot, w.after = waiting, slot, after
	if w.ask {
		slot.Put(0)
	}
	for _, token := range w.early {
		w.grant(token)
	}
	return slot
}

// End removes w, unless another use of its ID has begun.
func (t *Table) End(id string, w *Waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[id] == w {
		t.remove(id)
	}
}

// Cancel removes the request, also before Park. No wake-up follows.
func (t *Table) Cancel(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(id)
}

func (t *Table) remove(id string) {
	w := t.by[id]
	if w == nil {
		return
	}
	delete(t.by, id)
	if w.state != registered {
		if t.names[w.name]--; t.names[w.name] == 0 {
			delete(t.names, w.name)
		}
	}
	w.state = cancelled
	w.slot.Drain()
}

// Cancelled reports whether w was cancelled, perhaps before the store got the request.
func (t *Table) Cancelled(w *Waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.state == cancelled
}

// Notify takes a push for the request: the token of its grant, or 0 to make it ask the store.
func (t *Table) Notify(id string, token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.by[id]; w != nil {
		w.notify(token)
	}
}

// Ask makes the request ask the store, unless the last Ask had the same reason.
func (t *Table) Ask(id, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.by[id]; w != nil && w.hint != reason {
		w.hint = reason
		w.notify(0)
	}
}

func (w *Waiter) notify(token uint64) {
	switch {
	case w.state != registered && token != 0:
		w.grant(token)
	case w.state == waiting:
		w.slot.Put(0)
	case w.state != registered:
	case token == 0:
		w.ask = true
	case token > w.early[0]:
		w.early = [2]uint64{token, w.early[0]}
	case token < w.early[0]:
		w.early[1] = max(w.early[1], token)
	}
}

// grant takes a token, or nothing if it is 0, for a request that has been parked.
func (w *Waiter) grant(token uint64) {
	switch {
	case token <= w.after || token == w.token:
	case w.state == waiting:
		w.state, w.token = granted, token
		w.slot.Put(token)
	case w.state == granted:
		w.state = disputed
		w.slot.Drain()
		w.slot.Put(0)
	}
}

// Names returns at most limit names of parked requests, in random order, so that each has its turn.
func (t *Table) Names(limit int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, min(limit, len(t.names)))
	for name := range t.names {
		if len(names) == limit {
			break
		}
		names = append(names, name)
	}
	return names
}

// Pending calls f for each request that waits, or is about to. It leaves out those that got a token.
func (t *Table) Pending(f func(id, name string, kind uint8)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, w := range t.by {
		if w.token == 0 {
			f(id, w.name, w.kind)
		}
	}
}

// Len returns the number of requests.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.by)
}
