package modeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// world is one history: the same requests to the store and to the rule.
type world struct {
	t       *rapid.T
	ctx     context.Context
	store   Store
	now     time.Duration // on the store's clock, from where the history began
	clients []*client     // who are at work
	names   []*name       // in order
	asked   []*request    // all that was ever asked for
	hushed  []<-chan uint64
	ids     int
	last    func(lost bool) // the last operation, to be repeated word for word
}

// client is one session.
type client struct {
	driver.Session
	id   string
	deaf bool // what is pushed to it gets lost
	gone bool // closed or killed
}

// request is a request of one client, for a grant or for the end of a latch.
type request struct {
	driver.Request
	n     *name
	by    *client
	latch bool
	token uint64        // of its last grant that its client has heard of; the rule's
	wake  <-chan uint64 // while its client listens
	owed  []uint64      // what the rule has pushed since the last check
	at    time.Duration // when a latch was asked for last
}

// name is one name of the table.
type name struct {
	*rule.Entry
	name   string
	tokens map[uint64]uint64 // the rule's to the store's
	burnt  map[uint64]uint64 // when this was the rule's last, the store had gone so far
	loose  uint64            // with this as the rule's last, the store may have minted more
	peak   int               // the highest limit since it was last unused
	alive  map[uint64]bool   // the store's tokens that stood at the last check
	over   map[uint64]bool   // those that stood before
}

func newWorld(ctx context.Context, t *rapid.T, store Store) *world {
	w := &world{t: t, ctx: ctx, store: store, last: func(bool) {}}
	for range 3 {
		w.open()
	}
	for _, s := range []string{"l", "s", "x"} {
		n := &name{
			Entry: &rule.Entry{Mint: func(last uint64) uint64 { return last + 1 }}, name: s,
			tokens: map[uint64]uint64{}, burnt: map[uint64]uint64{}, alive: map[uint64]bool{}, over: map[uint64]bool{},
		}
		if store.Death == Skipped {
			n.Dead = func(session string) bool { return w.client(session) == nil }
		}
		w.names = append(w.names, n)
	}
	return w
}

// open adds a client.
func (w *world) open() {
	w.ids++
	ttl := time.Second
	if w.ids%3 == 0 {
		ttl = 3 * time.Second
	}
	c := &client{id: fmt.Sprint("c", w.ids)}
	var err error
	if c.Session, err = w.store.Backend.Open(w.ctx, driver.SessionConfig{ID: c.id, TTL: ttl}); err != nil {
		w.t.Fatalf("Open: %v", err)
	}
	w.clients = append(w.clients, c)
}

// leave takes a client away, and opens another.
func (w *world) leave(c *client) {
	c.gone = true
	for _, r := range w.asked {
		if r.by == c {
			r.wake, r.owed = nil, nil
		}
	}
	w.clients = slices.DeleteFunc(w.clients, func(o *client) bool { return o == c })
	w.open()
}

// client returns the client at work that has this session.
func (w *world) client(session string) *client {
	for _, c := range w.clients {
		if c.id == session {
			return c
		}
	}
	return nil
}

func (w *world) anyClient() *client {
	return w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(w.t, "client")]
}

// Names are mostly used as one kind, so that histories are not full of refusals: l as a latch, s
// as a semaphore, x as a lock.
func (w *world) aName(which ...int) *name { return w.names[rapid.SampledFrom(which).Draw(w.t, "name")] }
func (w *world) anyName() *name           { return w.aName(2, 1, 0) }
func (w *world) aLock() *name             { return w.aName(2, 2, 2, 2, 1, 1, 1, 1, 0) }

func (w *world) aLatch() *name {
	which := []int{0, 1}
	for i, n := range w.names {
		if n.Kind == driver.Latch {
			which = []int{i, i, i, 0, 1}
		}
	}
	return w.aName(which...)
}

// tick lets a little time pass, unseen, before an operation. Times are round, so that many things
// fall on one instant.
func (w *world) tick() {
	w.passed(rapid.SampledFrom([]time.Duration{
		0, 0, 0, 0, 0, 0, time.Microsecond, 100 * time.Millisecond, 100 * time.Millisecond,
		300 * time.Millisecond, 700 * time.Millisecond, time.Second,
	}).Draw(w.t, "after"))
}

func (w *world) passed(d time.Duration) {
	if d > 0 {
		w.store.Pass(d)
		w.now += d
	}
}

// do carries out an operation, perhaps so that its answer is lost, and keeps it for repeat.
func (w *world) do(op func(lost bool)) {
	w.last = op
	op(rapid.IntRange(0, 5).Draw(w.t, "answer lost if 5") == 5)
}

// call makes a call; if lost, its answer is of no use.
func (w *world) call(lost bool, f func() error) error {
	if !lost {
		return f()
	}
	if w.store.Drop != nil {
		w.store.Drop(true)
		defer w.store.Drop(false)
	}
	err := f()
	for _, ok := range append([]error{nil, driver.ErrUncertain}, kinds...) {
		if errors.Is(err, ok) {
			return nil
		}
	}
	w.t.Fatalf("an answer that was lost became: %v", err)
	return err
}

// logf says what was done, and what the rule made of it.
func (w *world) logf(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%v: %s", w.now, fmt.Sprintf(format, args...))
}

// same compares an error with the rule's and notes the rule's hand-overs. It reports whether
// the answer goes on.
func (w *world) same(lost bool, n *name, got, want error, grants []rule.Grant) bool {
	w.t.Helper()
	w.pushed(n, grants)
	if lost {
		return false
	}
	if want == driver.ErrGone && errors.Is(got, driver.ErrTaken) && n.Last == n.loose {
		want = driver.ErrTaken // after the token that the rule does not know of
	}
	if kindOf(got) != kindOf(want) {
		w.t.Fatalf("error %v; want %v", got, want)
	}
	return want == nil
}

// pushed notes what the rule has pushed.
func (w *world) pushed(n *name, grants []rule.Grant) {
	for _, g := range grants {
		for _, r := range w.asked {
			if r.n == n && r.ID == g.ID && r.by.id == g.Session && r.wake != nil {
				r.owed = append(r.owed, g.Token)
			}
		}
	}
}

// heard compares what was pushed since the last check with what the rule has pushed.
func (w *world) heard() {
	if w.store.Settle != nil {
		w.store.Settle()
	}
	for _, wake := range w.hushed {
		select {
		case v := <-wake:
			w.t.Fatalf("woken with %d after Cancel", v)
		default:
		}
	}
	for _, r := range w.asked {
		if r.wake == nil {
			continue
		}
		owed := r.owed
		r.owed = nil
		v, woken := uint64(0), false
		select {
		case v = <-r.wake:
			woken = true
		default:
		}
		switch {
		case r.by.deaf:
		case len(owed) > 0:
			w.woken(r, owed[len(owed)-1], v, woken)
		case v != 0 && !r.repeats(v):
			w.t.Fatalf("%s is woken with %d, which is not its grant", r.ID, v)
		}
	}
}

// woken compares one wake-up with the rule's.
func (w *world) woken(r *request, want, v uint64, woken bool) {
	if r.latch && !woken && w.now-r.at > r.by.TTL() {
		return // a store may forget an interest that is not refreshed
	}
	if !woken {
		w.t.Fatalf("%s is not woken; the rule pushed %d", r.ID, want)
	}
	if r.latch || want == 0 {
		if v != want {
			w.t.Fatalf("%s is woken with %d; want %d", r.ID, v, want)
		}
		return
	}
	if err := r.n.match(want, v); err != nil {
		w.t.Fatalf("%s is woken: %v", r.ID, err)
	}
	r.token = want
}

// repeats reports whether a wake-up that the rule did not push is of use all the same: it says
// what is so, or what r's client has heard before.
func (r *request) repeats(v uint64) bool {
	if r.latch {
		return v == 1 && r.n.Kind == driver.Latch && r.n.Count == 0
	}
	h := r.n.grantOf(r.ID)
	return h != nil && r.n.tokens[h.Token] == v || r.token != 0 && r.n.tokens[r.token] == v
}

// match notes that the store's token stands for the rule's; they grow alike.
func (n *name) match(ours, theirs uint64) error {
	if known, ok := n.tokens[ours]; ok || ours == 0 {
		if known != theirs {
			return fmt.Errorf("token %d; want %d again", theirs, known)
		}
		return nil
	}
	for o, t := range n.tokens {
		if o < ours && t >= theirs || o > ours && t <= theirs {
			return fmt.Errorf("token %d for the rule's %d, but %d for its %d", theirs, ours, t, o)
		}
	}
	for o, t := range n.burnt {
		if o < ours && t >= theirs {
			return fmt.Errorf("token %d after %d", theirs, t)
		}
	}
	n.tokens[ours] = theirs
	return nil
}

// grantOf returns the grant of a request that the rule has, and that is not kept.
func (n *name) grantOf(id string) *rule.Hold {
	i := slices.IndexFunc(n.Holds, func(h rule.Hold) bool { return h.ID == id && !h.Kept })
	if i < 0 {
		return nil
	}
	return &n.Holds[i]
}

// stands reports whether the grant that r's client knows of is there.
func (w *world) stands(r *request) bool {
	h := r.n.grantOf(r.ID)
	return h != nil && h.Token == r.token && h.Expires > w.now
}

// hold is the grant of r as its client names it.
func (r *request) hold() driver.Hold {
	return driver.Hold{Name: r.Name, ID: r.ID, Token: r.n.tokens[r.token]}
}

// recent returns the late requests and those that hold something, latest first.
func (w *world) recent() (some []*request) {
	for i, r := range slices.Backward(w.asked) {
		if len(w.asked)-i < 12 || w.stands(r) {
			some = append(some, r)
		}
	}
	return some
}

// pick draws one of the recent requests that are fit.
func (w *world) pick(fit func(r *request) bool) *request {
	w.t.Helper()
	var some []*request
	for _, r := range w.recent() {
		if fit(r) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		w.t.Skip("nothing to choose from")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(w.t, "request")]
}

// held draws a request whose client knows of a grant, whether that stands or not.
func (w *world) held() *request {
	w.t.Helper()
	return w.pick(func(r *request) bool { return r.token != 0 && !r.by.gone })
}
