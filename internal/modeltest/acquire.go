package modeltest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// acquire makes a new request.
func (w *world) acquire(t *rapid.T) {
	w.tick()
	w.ids++
	c, n := w.anyClient(), w.aLock()
	r := &request{by: c, n: n}
	r.Request = driver.Request{
		ID: fmt.Sprintf("%s-%d", c.id, w.ids), Name: n.name, Mode: driver.Exclusive, N: 1, Info: fmt.Sprint("info ", w.ids),
		Wait:    rapid.IntRange(0, 4).Draw(t, "wait unless 4") < 4,
		MinHold: rapid.SampledFrom([]time.Duration{0, 0, 0, 2500 * time.Millisecond}).Draw(t, "minimum hold"),
		Lease:   w.aLease(t),
	}
	odd := rapid.IntRange(0, 11).Draw(t, "odd kind if 11") == 11
	switch permits := n.name == "s" || n.name == "l" && n.Kind == driver.Semaphore; {
	case permits != odd:
		r.Mode, r.Limit = driver.Permits, 3
		if n.Kind == driver.Semaphore && rapid.IntRange(0, 11).Draw(t, "odd limit if 11") < 11 {
			r.Limit = n.Limit
		}
		r.N = rapid.IntRange(1, r.Limit).Draw(t, "n")
		if rapid.IntRange(0, 3).Draw(t, "as set if 3") == 3 {
			r.Limit = 0
		}
	case rapid.Bool().Draw(t, "shared"):
		r.Mode = driver.Shared
	default:
		r.Tokens = w.someTokens(t)
	}
	w.requests = append(w.requests, r)
	w.do(func(lost bool) { w.ask(r, lost) })
}

// repeatAcquire repeats a request: its answer was lost, its client was woken, or the client asks
// again by itself. A client does not ask again for a grant that has ended.
func (w *world) repeatAcquire(*rapid.T) {
	w.tick()
	r := w.pick(func(r *request) bool { return !r.by.gone && (r.token == 0 || w.isGranted(r)) })
	if r.latch {
		w.do(func(lost bool) { w.askLatch(r, lost) })
	} else {
		w.do(func(lost bool) { w.ask(r, lost) })
	}
}

func (w *world) ask(r *request, lost bool) {
	if r.by.gone {
		return
	}
	if lost || !w.isGranted(r) {
		r.token = 0 // the client does not know that
	}
	req, n := r.Request, r.n
	r.wake, r.expected = nil, nil
	var got driver.Reply
	err := w.call(lost, func() (err error) { got, err = r.by.Acquire(w.ctx, &req); return err })
	token, ahead, grants, want := n.Acquire(w.now, &req, r.by.id, r.by.TTL())
	w.logf("Acquire(%+v), answer lost %v: token %d, %d ahead, %v", req, lost, token, ahead, want)
	if !w.same(lost, n, err, want, grants) {
		return
	}
	switch {
	case (got.Token == 0) != (token == 0):
		w.t.Fatalf("answered %+v; want token %d", got, token)
	case token != 0:
		if err := n.match(token, got.Token); err != nil {
			w.t.Fatal(err)
		}
		r.token = token
		return
	case got.Ahead != ahead || got.Retry != n.Retry(w.now) || (got.Wake != nil) != req.Wait:
		w.t.Fatalf("answered %+v; want %d ahead, retry %v", got, ahead, n.Retry(w.now))
	case got.Holder == nil && w.store.Silent && req.Wait:
	case (got.Holder == nil) != (len(n.Holds) == 0):
		w.t.Fatalf("holder %+v of %d", got.Holder, len(n.Holds))
	case got.Holder != nil && !n.hasHolder(*got.Holder, w.now):
		w.t.Fatalf("holder %+v is none of %+v", got.Holder, n.Holds)
	}
	r.wake = got.Wake
}

// hasHolder reports whether the rule has a holder like the store's h.
func (n *name) hasHolder(h driver.Holder, now time.Duration) bool {
	for i := range n.Holds {
		want := n.Holds[i].Describe(now)
		ours := want.Token
		if want.Token = h.Token; want == h {
			return n.match(ours, h.Token) == nil
		}
	}
	return false
}

// aLease draws the lease of a request or renewal; most are as long as the session's TTL.
func (w *world) aLease(t *rapid.T) time.Duration {
	leases := []time.Duration{0, 0, 0, 300 * time.Millisecond, 800 * time.Millisecond, 2 * time.Second}
	if !w.store.Backend.Kinds().Leases {
		leases = leases[:1]
	}
	return rapid.SampledFrom(leases).Draw(t, "lease")
}

// someTokens draws how many tokens an exclusive request asks for.
func (w *world) someTokens(t *rapid.T) int {
	if !w.store.Backend.Kinds().Blocks {
		return 0
	}
	return rapid.SampledFrom([]int{0, 0, 1, 2, 50, driver.MaxTokens}).Draw(t, "tokens")
}

// renew renews some of a client's grants and places.
func (w *world) renew(t *rapid.T) {
	w.tick()
	c := w.anyClient()
	var of []*request
	var holds []driver.Hold
	var tokens []uint64
	for _, r := range w.recent() {
		if r.by != c || r.token != 0 && !w.isGranted(r) && rapid.Bool().Draw(t, "not one that ended") ||
			rapid.IntRange(0, 3).Draw(t, "not if 3") == 3 {
			continue
		}
		h, token := r.hold(), r.token
		if rapid.IntRange(0, 7).Draw(t, "as a place if 7") == 7 {
			h.Token, token = 0, 0
		}
		h.Lease = w.aLease(t)
		of, holds, tokens = append(of, r), append(holds, h), append(tokens, token)
	}
	w.do(func(lost bool) { w.renewThese(c, of, holds, tokens, lost) })
}

func (w *world) renewThese(c *client, of []*request, holds []driver.Hold, tokens []uint64, lost bool) {
	if c.gone {
		return
	}
	var got []driver.Change
	err := w.call(lost, func() (err error) { got, err = c.Renew(w.ctx, holds); return err })
	w.logf("Renew(%+v), answer lost %v", holds, lost)
	if err != nil {
		w.t.Fatal(err)
	}
	// The store chooses the order within a Renew; it affects when to ask again.
	before, grants := map[*name]time.Duration{}, map[*name][]rule.Grant{}
	want := make([]driver.Change, len(of))
	for _, r := range of {
		grants[r.n] = append(grants[r.n], r.n.Advance(w.now)...)
		before[r.n] = r.n.Retry(w.now)
	}
	for i, r := range of {
		h := holds[i]
		h.Token = tokens[i]
		want[i], _ = r.n.Renew(w.now, h, c.TTL())
	}
	for _, n := range w.names {
		w.pushed(n, grants[n])
	}
	if lost {
		return
	}
	for _, ch := range got {
		if ch.Index < 0 || ch.Index >= len(of) || ch.State == 0 || want[ch.Index].State == 0 {
			w.t.Fatalf("%+v; the rule has no change of it", ch)
		}
		r, wants := of[ch.Index], want[ch.Index]
		want[ch.Index].State = 0 // so that a second change for it is an error
		if after := r.n.Retry(w.now); wants.State == driver.Waiting && ch.Retry >= min(before[r.n], after) &&
			ch.Retry <= max(before[r.n], after) {
			wants.Retry = ch.Retry
		}
		if wants.State == driver.Granted && ch.State == driver.Granted {
			if err := r.n.match(wants.Token, ch.Token); err != nil {
				w.t.Fatal(err)
			}
			r.token, r.wake, r.expected = wants.Token, nil, nil
			wants.Token = ch.Token
		}
		if wants.Index = ch.Index; ch != wants {
			w.t.Fatalf("%s: %+v; want %+v", r.ID, ch, wants)
		}
	}
	for i, ch := range want {
		if ch.State != 0 {
			w.t.Fatalf("%s: no change; want %+v", of[i].ID, ch)
		}
	}
}

// setCount makes a latch.
func (w *world) setCount(t *rapid.T) {
	w.tick()
	c, n := w.anyClient(), w.aName(0, 0, 0, 0, 0, 1, 2)
	count := int64(rapid.SampledFrom([]int{2, 2, 3, 1, 0}).Draw(t, "count"))
	w.do(func(lost bool) {
		if c.gone {
			return
		}
		var got bool
		err := w.call(lost, func() (err error) { got, err = c.SetCount(w.ctx, n.name, count); return err })
		created, grants, want := n.SetCount(w.now, count)
		w.logf("SetCount(%s, %d), answer lost %v: %v, %v", n.name, count, lost, created, want)
		if w.same(lost, n, err, want, grants) && got != created {
			w.t.Fatalf("created: %v; want %v", got, created)
		}
	})
}

// countDown counts a latch down, often with an ID that has counted.
func (w *world) countDown(t *rapid.T) {
	w.tick()
	c, n := w.anyClient(), w.aLatch()
	id := fmt.Sprint("d", rapid.IntRange(0, 1).Draw(t, "id"))
	w.do(func(lost bool) {
		if c.gone {
			return
		}
		var got int64
		err := w.call(lost, func() (err error) { got, err = c.CountDown(w.ctx, n.name, id); return err })
		left, grants, want := n.CountDown(w.now, id)
		w.logf("CountDown(%s, %s), answer lost %v: %d left, %v", n.name, id, lost, left, want)
		if w.same(lost, n, err, want, grants) && got != left {
			w.t.Fatalf("%d left; want %d", got, left)
		}
	})
}

// await begins to wait for a latch.
func (w *world) await(*rapid.T) {
	w.tick()
	w.ids++
	c, n := w.anyClient(), w.aLatch()
	r := &request{by: c, n: n, latch: true, Request: driver.Request{ID: fmt.Sprintf("%s-%d", c.id, w.ids), Name: n.name}}
	w.requests = append(w.requests, r)
	w.do(func(lost bool) { w.askLatch(r, lost) })
}

func (w *world) askLatch(r *request, lost bool) {
	if r.by.gone {
		return
	}
	r.wake, r.expected, r.at = nil, nil, w.now
	var got driver.Reply
	err := w.call(lost, func() (err error) { got, err = r.by.Await(w.ctx, r.Name, r.ID); return err })
	open, grants, want := r.n.AskLatch(w.now, r.ID, r.by.id)
	w.logf("Await(%s, %s), answer lost %v: %v, %v", r.Name, r.ID, lost, open, want)
	if !w.same(lost, r.n, err, want, grants) {
		return
	}
	if (got.Token == 1) != open || (got.Wake == nil) != open {
		w.t.Fatalf("answered %+v; at zero: %v", got, open)
	}
	r.wake = got.Wake
}
