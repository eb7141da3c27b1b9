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
	t              *rapid.T
	ctx            context.Context
	store          Store
	now            time.Duration // on the store's clock, since the start of the history
	clients        []*client     // those with an open session
	names          []*name       // in order
	requests       []*request    // all requests so far
	cancelledWakes []<-chan uint64
	ids            int
	last           func(lost bool) // the last operation, which repeat sends again unchanged
}

// client is one session.
type client struct {
	driver.Session
	id          string
	losesPushes bool // pushes to it are lost
	gone        bool // closed or killed
}

// request is a client's request for a grant, or for the end of a latch.
type request struct {
	driver.Request
	n        *name
	by       *client
	latch    bool
	token    uint64        // of the last grant that its client knows; the rule's
	wake     <-chan uint64 // while its client reads it
	expected []uint64      // what the rule has pushed since the last check
	at       time.Duration // when the client last asked for a latch
}

// name is one name of the table.
type name struct {
	*rule.Entry
	name          string
	tokens        map[uint64]uint64 // the rule's to the store's
	blocks        map[uint64]uint64 // the rule's to how many tokens the grant took, or may have taken
	kinds         driver.Kinds      // of the store
	lastTokens    map[uint64]uint64 // the store's token when this was the rule's last
	uncertainLast uint64            // as the rule's last: the store may have made more tokens
	peak          int               // the highest limit since it was last unused
	current       map[uint64]bool   // the store's tokens that were granted at the last check
	ended         map[uint64]bool   // those that were granted before
}

func newWorld(ctx context.Context, t *rapid.T, store Store) *world {
	w := &world{t: t, ctx: ctx, store: store, last: func(bool) {}}
	for range 3 {
		w.open()
	}
	for _, s := range []string{"l", "s", "x"} {
		n := &name{
			Entry: &rule.Entry{}, name: s, kinds: store.Backend.Kinds(),
			tokens: map[uint64]uint64{}, blocks: map[uint64]uint64{},
			lastTokens: map[uint64]uint64{}, current: map[uint64]bool{}, ended: map[uint64]bool{},
		}
		n.Mint = n.mint
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

// replace removes a client, and opens another.
func (w *world) replace(c *client) {
	c.gone = true
	for _, r := range w.requests {
		if r.by == c {
			r.wake, r.expected = nil, nil
		}
	}
	w.clients = slices.DeleteFunc(w.clients, func(o *client) bool { return o == c })
	w.open()
}

// client returns the open client with this session.
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

// Names are mostly used as one kind, so that histories are not full of refusals: l as a latch, s as
// a semaphore, x as a lock.
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

// tick lets a little time pass before an operation. Times are round, so that many events fall on
// one instant.
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

// do makes an operation, perhaps with a lost answer, and keeps it for repeat.
func (w *world) do(op func(lost bool)) {
	w.last = op
	op(rapid.IntRange(0, 5).Draw(w.t, "answer lost if 5") == 5)
}

// call makes a call; if lost, it ignores the answer.
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
	w.t.Fatalf("a call with a lost answer returned: %v", err)
	return err
}

// logf logs an operation and the rule's result.
func (w *world) logf(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%v: %s", w.now, fmt.Sprintf(format, args...))
}

// same compares an error with the rule's and notes the rule's hand-overs. It reports whether to
// compare the rest of the answer.
func (w *world) same(lost bool, n *name, got, want error, grants []rule.Grant) bool {
	w.t.Helper()
	w.pushed(n, grants)
	if lost {
		return false
	}
	if want == driver.ErrGone && errors.Is(got, driver.ErrTaken) && n.Last == n.uncertainLast {
		want = driver.ErrTaken // after a token that the rule does not know
	}
	if kindOf(got) != kindOf(want) {
		w.t.Fatalf("error %v; want %v", got, want)
	}
	return want == nil
}

// pushed notes what the rule has pushed.
func (w *world) pushed(n *name, grants []rule.Grant) {
	for _, g := range grants {
		for _, r := range w.requests {
			if r.n == n && r.ID == g.ID && r.by.id == g.Session && r.wake != nil {
				r.expected = append(r.expected, g.Token)
			}
		}
	}
}

// checkPushes compares the pushes since the last check with the rule's.
func (w *world) checkPushes() {
	if w.store.Settle != nil {
		w.store.Settle()
	}
	for _, wake := range w.cancelledWakes {
		select {
		case v := <-wake:
			w.t.Fatalf("pushed %d after Cancel", v)
		default:
		}
	}
	for _, r := range w.requests {
		if r.wake == nil {
			continue
		}
		owed := r.expected
		r.expected = nil
		v, woken := uint64(0), false
		select {
		case v = <-r.wake:
			woken = true
		default:
		}
		switch {
		case r.by.losesPushes:
		case len(owed) > 0:
			w.comparePush(r, owed[len(owed)-1], v, woken)
		case v != 0 && !r.stillTrue(v):
			w.t.Fatalf("%s was pushed %d, which is not its grant", r.ID, v)
		}
	}
}

// comparePush compares one push with the rule's.
func (w *world) comparePush(r *request, want, v uint64, woken bool) {
	if r.latch && !woken && w.now-r.at > r.by.TTL() {
		return // a store may forget an interest that is not renewed
	}
	if !woken {
		w.t.Fatalf("%s got no push; the rule pushed %d", r.ID, want)
	}
	if r.latch || want == 0 {
		if v != want {
			w.t.Fatalf("%s was pushed %d; want %d", r.ID, v, want)
		}
		return
	}
	if err := r.n.match(want, v); err != nil {
		w.t.Fatalf("%s got a push: %v", r.ID, err)
	}
	r.token = want
}

// stillTrue reports whether a push that the rule did not make is still correct: it reports the
// current state, or what r's client knows already.
func (r *request) stillTrue(v uint64) bool {
	if r.latch {
		return v == 1 && r.n.Kind == driver.Latch && r.n.Count == 0
	}
	h := r.n.grantOf(r.ID)
	return h != nil && r.n.tokens[h.Token] == v || r.token != 0 && r.n.tokens[r.token] == v
}

// mint makes the rule's next token, which is the last of a block.
func (n *name) mint(last uint64, block int) uint64 {
	last += uint64(block)
	n.blocks[last] = uint64(block)
	return last
}

// match notes that the store's token corresponds to the rule's. Both must grow alike, and the whole
// block of a grant (R21) lies between the tokens before and after it.
func (n *name) match(ours, theirs uint64) error {
	if known, ok := n.tokens[ours]; ok || ours == 0 {
		if known != theirs {
			return fmt.Errorf("token %d; want %d again", theirs, known)
		}
		return nil
	}
	asked := driver.Request{Tokens: int(n.blocks[ours])}
	n.blocks[ours] = uint64(asked.Granted(theirs, n.kinds))
	for o, t := range n.tokens {
		if o < ours && theirs < t+n.blocks[ours] || o > ours && t < theirs+n.blocks[o] {
			return fmt.Errorf("token %d for the rule's %d, a block of %d, but %d for its %d, a block of %d",
				theirs, ours, n.blocks[ours], t, o, n.blocks[o])
		}
	}
	for o, t := range n.lastTokens {
		if o < ours && theirs < t+n.blocks[ours] {
			return fmt.Errorf("token %d, a block of %d, after %d", theirs, n.blocks[ours], t)
		}
	}
	n.tokens[ours] = theirs
	return nil
}

// grantOf returns the rule's grant of a request, unless it is kept.
func (n *name) grantOf(id string) *rule.Hold {
	i := slices.IndexFunc(n.Holds, func(h rule.Hold) bool { return h.ID == id && !h.Kept })
	if i < 0 {
		return nil
	}
	return &n.Holds[i]
}

// isGranted reports whether the grant that r's client knows exists.
func (w *world) isGranted(r *request) bool {
	h := r.n.grantOf(r.ID)
	return h != nil && h.Token == r.token && h.Expires > w.now
}

// hold names r's grant as its client does.
func (r *request) hold() driver.Hold {
	return driver.Hold{Name: r.Name, ID: r.ID, Token: r.n.tokens[r.token]}
}

// recent returns the latest requests and those with a grant, latest first.
func (w *world) recent() (some []*request) {
	for i, r := range slices.Backward(w.requests) {
		if len(w.requests)-i < 12 || w.isGranted(r) {
			some = append(some, r)
		}
	}
	return some
}

// pick draws one of the recent requests for which fit is true.
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

// held draws a request whose client knows of a grant, whether it still exists or not.
func (w *world) held() *request {
	w.t.Helper()
	return w.pick(func(r *request) bool { return r.token != 0 && !r.by.gone })
}
