package modeltest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// release ends a grant, or tries to.
func (w *world) release(t *rapid.T) {
	w.tick()
	r := w.held()
	keep := rapid.SampledFrom([]time.Duration{0, 0, 0, 900 * time.Millisecond}).Draw(t, "keep")
	h, token := r.hold(), r.token
	w.do(func(lost bool) {
		if r.by.gone {
			return
		}
		err := w.call(lost, func() error { return r.by.Release(w.ctx, h, keep) })
		grants, want := r.n.Release(w.now, h.ID, token, keep)
		w.logf("Release(%+v, %v), answer lost %v: %v", h, keep, lost, want)
		w.same(lost, r.n, err, want, grants)
	})
}

// cancel cancels a request.
func (w *world) cancel(*rapid.T) {
	w.tick()
	r := w.pick(func(r *request) bool { return !r.by.gone })
	w.do(func(lost bool) {
		if r.by.gone {
			return
		}
		err := w.call(lost, func() error { return r.by.Cancel(w.ctx, r.Name, r.ID) })
		w.logf("Cancel(%s, %s), answer lost %v", r.Name, r.ID, lost)
		if r.wake != nil && !lost {
			select {
			case <-r.wake: // the push came first
			default:
			}
			w.cancelledWakes = append(w.cancelledWakes, r.wake)
		}
		r.wake, r.expected = nil, nil
		w.same(lost, r.n, err, nil, r.n.Cancel(w.now, r.ID))
	})
}

// downgrade makes a writer a reader.
func (w *world) downgrade(*rapid.T) {
	w.tick()
	r := w.held()
	h, token := r.hold(), r.token
	w.do(func(lost bool) {
		if r.by.gone {
			return
		}
		err := w.call(lost, func() error { return r.by.Downgrade(w.ctx, h) })
		grants, want := r.n.Downgrade(w.now, h.ID, token)
		w.logf("Downgrade(%+v), answer lost %v: %v", h, lost, want)
		w.same(lost, r.n, err, want, grants)
	})
}

// reduce gives back some permits of a grant, or tries to.
func (w *world) reduce(t *rapid.T) {
	w.tick()
	r := w.held()
	n := rapid.SampledFrom([]int{1, 2, 1, 3, 0}).Draw(t, "left")
	h, token := r.hold(), r.token
	w.do(func(lost bool) {
		if r.by.gone {
			return
		}
		err := w.call(lost, func() error { return r.by.Reduce(w.ctx, h, n) })
		grants, want := r.n.Reduce(w.now, h.ID, token, n)
		w.logf("Reduce(%+v, %d), answer lost %v: %v", h, n, lost, want)
		w.same(lost, r.n, err, want, grants)
	})
}

// adopt moves a grant to another client, whether its own is open or not.
func (w *world) adopt(t *rapid.T) {
	w.tick()
	r := w.pick(func(r *request) bool { return r.token != 0 })
	c, n := w.anyClient(), r.n
	h, token := r.hold(), r.token
	w.ids++
	id, info := fmt.Sprintf("%s-%d", c.id, w.ids), fmt.Sprintf("adopted by %s", c.id)
	if others := n.others(h.ID, token, w.now); len(others) > 0 && rapid.IntRange(0, 3).Draw(t, "an id in use if 3") == 3 {
		id = rapid.SampledFrom(others).Draw(t, "id")
	}
	w.do(func(lost bool) {
		if c.gone {
			return
		}
		err := w.call(lost, func() error { return c.Adopt(w.ctx, h, id, info) })
		grants, want := n.Adopt(w.now, h.ID, token, id, info, c.id, c.TTL())
		w.logf("Adopt(%+v, %s), answer lost %v: %v", h, id, lost, want)
		w.same(lost, n, err, want, grants)
		if want != nil || slices.ContainsFunc(w.requests, func(r *request) bool { return r.ID == id }) {
			return
		}
		a := &request{Request: r.Request, n: n, by: c, token: token}
		a.ID = id
		w.requests = append(w.requests, a)
	})
}

// others returns the IDs that do not belong to the given grant.
func (n *name) others(id string, token uint64, now time.Duration) (ids []string) {
	for _, h := range n.Holds {
		if h.ID != id && h.Token != token && !h.Kept && h.Expires > now {
			ids = append(ids, h.ID)
		}
	}
	for _, p := range n.Line {
		if p.ID != id && p.Deadline > now {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// removeLatch is the operator's removal of a latch, or of a name that is not a latch.
func (w *world) removeLatch(t *rapid.T) {
	w.tick()
	n := w.aLatch()
	if rapid.Bool().Draw(t, "any name") {
		n = w.anyName()
	}
	w.do(func(lost bool) {
		err := w.call(lost, func() error { return w.store.Backend.RemoveLatch(w.ctx, n.name) })
		grants, want := n.RemoveLatch(w.now)
		w.logf("RemoveLatch(%s), answer lost %v: %v", n.name, lost, want)
		w.same(lost, n, err, want, grants)
	})
}

// breakGrant is the operator's break of a grant, or of one that has ended. A latch has none.
func (w *world) breakGrant(t *rapid.T) {
	w.tick()
	n := w.aLatch()
	if rapid.Bool().Draw(t, "any name") {
		n = w.anyName()
	}
	var token, theirs uint64
	if n.Kind == driver.Latch {
		token = rapid.SampledFrom([]uint64{1, 2}).Draw(t, "token")
		theirs = token
	} else {
		some := []uint64{n.Last}
		for _, h := range n.Holds {
			some = append(some, h.Token)
		}
		token = rapid.SampledFrom(some).Draw(t, "token")
		if theirs = n.tokens[token]; theirs == 0 {
			t.Skip("a token that was never seen")
		}
	}
	w.do(func(lost bool) {
		if n.Kind != driver.Latch && n.tokens[token] != theirs {
			return // the latch has ended; the same token would mean another one
		}
		err := w.call(lost, func() error { return w.store.Backend.Break(w.ctx, n.name, theirs) })
		grants, want := n.Break(w.now, token)
		w.logf("Break(%s, %d), answer lost %v: %v", n.name, theirs, lost, want)
		w.same(lost, n, err, want, grants)
	})
}

// setLimit sets the limit of a semaphore, or removes it.
func (w *world) setLimit(t *rapid.T) {
	w.tick()
	n := w.anyName()
	limit := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 0, 0, 0}).Draw(t, "limit")
	w.do(func(lost bool) {
		err := w.call(lost, func() error { return w.store.Backend.SetLimit(w.ctx, n.name, limit) })
		grants, want := n.SetLimit(w.now, limit)
		w.logf("SetLimit(%s, %d), answer lost %v: %v", n.name, limit, lost, want)
		w.same(lost, n, err, want, grants)
	})
}

// list lists some names.
func (w *world) list(t *rapid.T) {
	w.tick()
	prefix := rapid.SampledFrom([]string{"", "", "s", "z"}).Draw(t, "prefix")
	after := rapid.SampledFrom([]string{"", "", "l", "m"}).Draw(t, "after")
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	got, err := w.store.Backend.List(w.ctx, prefix, after, limit)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	w.logf("List(%q, %q, %d): %d", prefix, after, limit, len(got))
	var want []*name
	for _, n := range w.names {
		if strings.HasPrefix(n.name, prefix) && n.name > after {
			w.pushed(n, n.Advance(w.now))
			if n.Used() && len(want) < limit {
				want = append(want, n)
			}
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d listed; want %d", len(got), len(want))
	}
	for i, n := range want {
		if err := w.compare(n, got[i]); err != nil {
			t.Fatalf("listed:\n%+v\n%v; want\n%+v", got[i], err, n.Record(w.now, n.name))
		}
	}
}

// close ends a session by Close.
func (w *world) close(t *rapid.T) {
	w.tick()
	c := w.anyClient()
	for _, r := range w.requests {
		// A minimum hold does not count for a grant that nobody used, if the store knows that.
		if h := r.n.grantOf(r.ID); h != nil && h.Session == c.id && h.KeepUntil > w.now && h.Token != r.token {
			t.Skip("a grant that its client does not know")
		}
	}
	w.logf("Close of %s", c.id)
	if err := c.Close(w.ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	w.endSession(c)
	w.replace(c)
}

// endSession ends a session by the rule.
func (w *world) endSession(c *client) {
	for _, n := range w.names {
		waits := slices.ContainsFunc(n.Line, func(p rule.Place) bool { return p.Session == c.id })
		w.pushed(n, n.Leave(w.now, c.id))
		if waits { // the lock may have gone to a place that was removed next
			n.uncertainLast = n.Last
		}
	}
}

// kill ends a session as the end of its process would.
func (w *world) kill(*rapid.T) {
	w.tick()
	c := w.anyClient()
	w.logf("%s dies", c.id)
	if w.store.Kill != nil {
		w.store.Kill(c.id)
	}
	if w.store.Death == AsClosed {
		w.endSession(c)
	}
	w.replace(c)
}

// passTime lets more time pass than a tick.
func (w *world) passTime(t *rapid.T) {
	w.passed(rapid.SampledFrom([]time.Duration{
		900 * time.Millisecond, time.Second, 1100 * time.Millisecond, 2 * time.Second, 3 * time.Second,
		15 * time.Second, 2 * time.Minute, 2 * time.Hour,
	}).Draw(t, "time"))
}

// losePushes starts or stops losing the pushes to a client.
func (w *world) losePushes(*rapid.T) {
	c := w.anyClient()
	c.losesPushes = !c.losesPushes
	w.logf("pushes to %s are lost: %v", c.id, c.losesPushes)
	if w.store.Lose != nil {
		w.store.Lose(c.id, c.losesPushes)
	}
}

// repeat repeats the last operation, as a network does.
func (w *world) repeat(*rapid.T) { w.last(false) }
