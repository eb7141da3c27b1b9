package redislock_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// step lets time pass and does one random thing to the server and to the rule.
func (w *world) step() (string, error) {
	if err := w.tick(); err != nil {
		return "tick", err
	}
	n := w.rnd.IntN(len(w.names))
	s := w.rnd.IntN(len(w.sessions))
	switch p := w.rnd.IntN(100); {
	case p < 35:
		return w.acquire(n, s)
	case p < 45:
		return w.again()
	case p < 60:
		return w.release()
	case p < 73:
		return w.renew(s)
	case p < 80:
		return w.cancel()
	case p < 84:
		return w.downgrade()
	case p < 88:
		return w.adopt(s)
	case p < 92:
		return w.breaks()
	case p < 96:
		limit := 1 + w.rnd.IntN(4)
		err := w.b.SetLimit(w.ctx, w.names[n], limit)
		grants, want := w.entries[n].SetLimit(w.now, limit)
		return w.verdict(fmt.Sprintf("SetLimit(%d, %d)", n, limit), n, err, want, grants)
	default:
		return w.latch(n, s)
	}
}

// verdict compares errors and hand-overs.
func (w *world) verdict(what string, name int, got, want error, grants []rule.Grant) (string, error) {
	what = fmt.Sprintf("%v %s: %v", w.now-1_700_000_000*time.Second, what, want)
	if kindOf(got) != kindOf(want) {
		return what, fmt.Errorf("error %v; want %v", got, want)
	}
	return what, w.grants(name, grants)
}

func (w *world) acquire(n, s int) (string, error) {
	r := driver.Request{
		ID: fmt.Sprintf("%s-%d", w.ids[s], len(w.asked)), Name: w.names[n], Mode: driver.Exclusive, N: 1,
		Wait: w.rnd.IntN(5) > 0, Info: fmt.Sprint("info ", len(w.asked)),
	}
	// A name is mostly used as one kind at a time; the other is refused.
	if semaphore := n == 1; semaphore != (w.rnd.IntN(12) == 0) {
		r.Mode, r.Limit = driver.Permits, 3
		if e := w.entries[n]; e.Kind == driver.Semaphore && w.rnd.IntN(10) > 0 {
			r.Limit = e.Limit
		}
		r.N = 1 + w.rnd.IntN(r.Limit)
	} else if w.rnd.IntN(2) == 0 {
		r.Mode = driver.Shared
	}
	if w.rnd.IntN(4) == 0 {
		r.MinHold = time.Duration(w.rnd.IntN(20)) * 100 * time.Millisecond
	}
	a := &asked{name: n, session: s, req: r}
	w.asked = append(w.asked, a)
	return w.ask(a)
}

// again repeats a request: its answer was lost, or it is woken.
func (w *world) again() (string, error) {
	a := w.pick(false)
	if a == nil {
		return "nothing to repeat", nil
	}
	// A grant of a group that is kept after its end is not asked for again.
	for _, h := range w.entries[a.name].Holds {
		if h.ID == a.req.ID && (h.Kept || h.Expires <= w.now) {
			return "kept", nil
		}
	}
	return w.ask(a)
}

func (w *world) ask(a *asked) (string, error) {
	e := w.entries[a.name]
	got, err := w.sessions[a.session].Acquire(w.ctx, &a.req)
	token, ahead, grants, want := e.Acquire(w.now, &a.req, w.ids[a.session], w.ttls[a.session])
	what := fmt.Sprintf("Acquire(%+v) = %d, %d ahead", a.req, token, ahead)
	what, bad := w.verdict(what, a.name, err, want, grants)
	switch {
	case bad != nil || want != nil:
		return what, bad
	case (got.Token == 0) != (token == 0):
		return what, fmt.Errorf("answered %+v; want token %d", got, token)
	case token != 0:
		a.token = token
		return what, w.minted(a.name, token, got.Token)
	case got.Ahead != ahead || got.Retry != e.Retry(w.now) || (got.Wake == nil) == a.req.Wait:
		return what, fmt.Errorf("answered %+v; want %d ahead, retry %v", got, ahead, e.Retry(w.now))
	case (got.Holder == nil) != (len(e.Holds) == 0):
		return what, fmt.Errorf("holder %+v of %d", got.Holder, len(e.Holds))
	case got.Holder == nil:
		return what, nil
	}
	for i := range e.Holds {
		h := e.Holds[i].Describe(w.now)
		if h.Token = w.tokens[a.name][h.Token]; h == *got.Holder {
			return what, nil
		}
	}
	return what, fmt.Errorf("holder %+v is none of %+v", got.Holder, e.Holds)
}

// pick returns a recent request; held: one that the rule has as a grant, if there is any.
func (w *world) pick(held bool) *asked {
	recent := w.asked[max(0, len(w.asked)-15):]
	if held {
		recent = slices.DeleteFunc(slices.Clone(w.asked), func(a *asked) bool {
			return !slices.ContainsFunc(w.entries[a.name].Holds, func(h rule.Hold) bool { return h.ID == a.req.ID })
		})
	}
	if len(recent) == 0 {
		return nil
	}
	return recent[w.rnd.IntN(len(recent))]
}

// grant picks a grant, mostly one that stands, and returns the rule's token and the server's.
func (w *world) grant() (a *asked, token uint64, h driver.Hold) {
	if a = w.pick(w.rnd.IntN(6) > 0); a == nil {
		return nil, 0, h
	}
	token = a.token
	for _, held := range w.entries[a.name].Holds {
		if held.ID == a.req.ID {
			token = held.Token
		}
	}
	if token == 0 {
		return nil, 0, h
	}
	a.token = token
	return a, token, driver.Hold{Name: a.req.Name, ID: a.req.ID, Token: w.tokens[a.name][token]}
}

func (w *world) release() (string, error) {
	a, token, h := w.grant()
	if a == nil {
		return "nothing to release", nil
	}
	var keep time.Duration
	if w.rnd.IntN(4) == 0 {
		keep = time.Duration(w.rnd.IntN(20)) * 100 * time.Millisecond
	}
	err := w.sessions[a.session].Release(w.ctx, h, keep)
	grants, want := w.entries[a.name].Release(w.now, a.req.ID, token, keep)
	return w.verdict(fmt.Sprintf("Release(%s, %d, %v)", a.req.ID, token, keep), a.name, err, want, grants)
}

func (w *world) renew(s int) (string, error) {
	var of []*asked
	var holds []driver.Hold
	var tokens []uint64
	for _, a := range w.asked[max(0, len(w.asked)-30):] {
		if a.session != s || w.rnd.IntN(2) == 0 {
			continue
		}
		token := a.token
		for _, h := range w.entries[a.name].Holds {
			if h.ID == a.req.ID && w.rnd.IntN(2) == 0 {
				token = h.Token
			}
		}
		of, tokens = append(of, a), append(tokens, token)
		holds = append(holds, driver.Hold{Name: a.req.Name, ID: a.req.ID, Token: w.tokens[a.name][token]})
	}
	what := fmt.Sprintf("Renew(%+v)", holds)
	got, err := w.sessions[s].Renew(w.ctx, holds)
	if err != nil {
		return what, err
	}
	grants := make([][]rule.Grant, len(w.names))
	for i, a := range of {
		want, more := w.entries[a.name].Renew(w.now, a.req.ID, tokens[i], w.ttls[s])
		grants[a.name] = append(grants[a.name], more...)
		var has driver.Change
		for _, c := range got {
			if c.Index == i {
				has = c
			}
		}
		has.Index = 0
		if want.Token != 0 {
			a.token = want.Token
			if g := grants[a.name]; !slices.ContainsFunc(g, func(g rule.Grant) bool { return g.Token == want.Token }) {
				if err := w.minted(a.name, want.Token, has.Token); err != nil {
					return what, err
				}
			}
			has.Token, want.Token = 0, 0
		}
		if has != want {
			return what, fmt.Errorf("hold %d: %+v; want %+v", i, has, want)
		}
	}
	return what, w.handed(grants)
}

func (w *world) cancel() (string, error) {
	a := w.pick(w.rnd.IntN(2) == 0)
	if a == nil {
		return "nothing to cancel", nil
	}
	for _, h := range w.entries[a.name].Holds {
		if h.ID == a.req.ID && h.Expires <= w.now && h.KeepUntil > w.now && !h.Kept {
			return "just run out", nil // the rule gives it back if nobody has looked since; the server never does
		}
	}
	err := w.sessions[a.session].Cancel(w.ctx, a.req.Name, a.req.ID)
	grants := w.entries[a.name].Cancel(w.now, a.req.ID)
	return w.verdict(fmt.Sprintf("Cancel(%s)", a.req.ID), a.name, err, nil, grants)
}

func (w *world) downgrade() (string, error) {
	a, token, h := w.grant()
	if a == nil {
		return "nothing to downgrade", nil
	}
	err := w.sessions[a.session].Downgrade(w.ctx, h)
	grants, want := w.entries[a.name].Downgrade(w.now, a.req.ID, token)
	return w.verdict(fmt.Sprintf("Downgrade(%s)", a.req.ID), a.name, err, want, grants)
}

func (w *world) adopt(s int) (string, error) {
	a, token, h := w.grant()
	if a == nil {
		return "nothing to adopt", nil
	}
	w.adopted++
	id := fmt.Sprintf("%s-a%d", w.ids[s], w.adopted)
	if w.rnd.IntN(6) == 0 {
		if other := w.pick(false); other.session == s {
			id = other.req.ID
		}
	}
	what := fmt.Sprintf("Adopt(%s, %s)", a.req.ID, id)
	err := w.sessions[s].Adopt(w.ctx, h, id, "adopter")
	grants, want := w.entries[a.name].Adopt(w.now, a.req.ID, token, id, "adopter", w.ids[s], w.ttls[s])
	what, bad := w.verdict(what, a.name, err, want, grants)
	if bad == nil && want == nil && w.rnd.IntN(2) == 0 { // the answer was lost
		err := w.sessions[s].Adopt(w.ctx, h, id, "adopter")
		grants, want := w.entries[a.name].Adopt(w.now, a.req.ID, token, id, "adopter", w.ids[s], w.ttls[s])
		what, bad = w.verdict(what+" again", a.name, err, want, grants)
	}
	if bad == nil && want == nil {
		a.session, a.req.ID = s, id
	}
	return what, bad
}

func (w *world) breaks() (string, error) {
	a, token, h := w.grant()
	if a == nil {
		return "nothing to break", nil
	}
	err := w.b.Break(w.ctx, h.Name, h.Token)
	grants, want := w.entries[a.name].Break(w.now, token)
	return w.verdict(fmt.Sprintf("Break(%s)", a.req.ID), a.name, err, want, grants)
}

func (w *world) latch(n, s int) (string, error) {
	e, id := w.entries[n], fmt.Sprint("l", w.rnd.IntN(4))
	switch w.rnd.IntN(4) {
	case 0:
		if w.rnd.IntN(8) > 0 { // a latch stays; not too many names should become one
			return "no latch", nil
		}
		count := int64(w.rnd.IntN(4))
		got, err := w.sessions[s].SetCount(w.ctx, w.names[n], count)
		created, grants, want := e.SetCount(w.now, count)
		if got != created {
			return "SetCount", fmt.Errorf("created: %v; want %v", got, created)
		}
		return w.verdict("SetCount", n, err, want, grants)
	case 1, 2:
		got, err := w.sessions[s].CountDown(w.ctx, w.names[n], id)
		latch := e.Kind == driver.Latch
		left, grants, want := e.CountDown(w.now, id)
		if latch {
			grants = nil // those who await it are told by a token that stands for no grant
		}
		if got != left {
			return "CountDown", fmt.Errorf("%d left; want %d", got, left)
		}
		return w.verdict("CountDown", n, err, want, grants)
	default:
		r, err := w.sessions[s].Await(w.ctx, w.names[n], "a"+id)
		_, grants, want := e.AskLatch(w.now, "a"+id, w.ids[s])
		if want == nil && ((r.Token == 1) != (e.Count == 0) || (r.Wake == nil) != (e.Count == 0)) {
			return "Await", fmt.Errorf("%+v with %d left", r, e.Count)
		}
		return w.verdict("Await", n, err, want, grants)
	}
}
