package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
	"github.com/holdfast-lock/holdfast/history"
)

// Of the whole duration: how much is calm at first, and from when on no fault begins.
const (
	calmFirst = 0.15
	calmLast  = 0.8
)

// sayEvery is how often somebody is told how far it is.
const sayEvery = 3 * time.Second

// exercise lets the workers work, and does the faults: a calm time, faults with calm between them, and a calm end, so
// that what recovers can be seen to. A machine that is so slow that nothing would be proved gets as long again.
func (r *run) exercise(ctx context.Context) {
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	var saying sync.WaitGroup
	saying.Go(func() { r.keepSaying(ctx, begin) })
	defer saying.Wait()
	defer cancel(errEnough)
	part := func(f float64) time.Time { return begin.Add(time.Duration(f * float64(r.Duration))) }
	pause(ctx, time.Until(part(calmFirst)))
	if len(r.kinds)+len(r.Faults) > 0 {
		s := newSchedule(r.Seed, r.kinds, r.Faults, r.Processes)
		n := 0
		for next := s.next(); ctx.Err() == nil && (time.Now().Before(part(calmLast)) || r.done() < minFaults && time.Now().Before(part(2*calmLast))); next = s.next() {
			var done sync.WaitGroup
			for _, p := range next.faults {
				n++
				id := fmt.Sprintf("f%d", n)
				done.Go(func() { r.inject(ctx, id, p) })
			}
			done.Wait()
			pause(ctx, r.times(next.calm))
		}
	}
	pause(ctx, max(time.Until(part(1)), r.ttl))
	r.await(ctx, r.Duration, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.totals().Grants >= 2*minGrants
	})
}

// done is how many faults there were so far.
func (r *run) done() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.faults {
		n += k
	}
	return n
}

// pause waits for d; less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// times is f TTLs.
func (r *run) times(f float64) time.Duration { return time.Duration(f * float64(r.ttl)) }

// meetLimit bounds how long a fault waits for load to meet, beside some TTLs. Without load it is done all the same,
// and the judge says that it met none.
const meetLimit = 5 * time.Second

// preferLimit is for how long it is looked for.
const preferLimit = 500 * time.Millisecond

// inject does one fault, from before it begins until it has healed.
func (r *run) inject(ctx context.Context, id string, f planned) {
	r.mu.Lock()
	p := r.crew[f.process]
	r.mu.Unlock()
	// A process that holds a lock and waits for others has the most to lose, so it is looked for; without it the load
	// of all is enough.
	begin := history.Now()
	r.await(ctx, preferLimit, func() bool {
		now := p.progress()
		return f.own >= 0 || p.running() && now.T > begin && now.Holding > 0 && now.Waiting > 0
	})
	r.await(ctx, meetLimit+r.ttl, func() bool { return r.loaded(begin) && (f.own >= 0 || p.running()) })
	if ctx.Err() != nil {
		return
	}
	target := p.name
	if f.own >= 0 {
		if target = r.Faults[f.own].Target; target == "" {
			target = "the store"
		}
	} else if !p.running() {
		return // it has ended by itself, and is not back yet
	}
	r.mu.Lock()
	r.faults[f.kind]++
	now := f.kind + " of " + target
	r.now = append(r.now, now)
	r.mu.Unlock()
	begin = r.rec.Record(history.Event{Kind: history.Fault, ID: id, Target: target, Text: f.kind})
	if f.kind == KindKill || f.own >= 0 || !r.remote {
		r.met(ctx, begin) // while it lasts nobody may get on, and so nobody be met
	}
	switch {
	case f.own >= 0:
		r.doOwn(ctx, r.Faults[f.own], r.times(f.length))
	case f.kind == KindStop:
		r.doStop(ctx, p, id, r.times(f.length))
	case f.kind == KindKill:
		r.bury(p)
	default:
		r.doRelay(ctx, p, f)
	}
	r.met(ctx, begin)
	healed := func() { r.rec.Record(history.Event{Kind: history.Healed, ID: id, Target: target}) }
	r.mu.Lock()
	r.now = slices.DeleteFunc(r.now, func(s string) bool { return s == now })
	r.mu.Unlock()
	if f.own < 0 && f.kind != KindStop && f.kind != KindKill {
		r.followers.Go(func() { r.settle(healed) })
	} else {
		healed()
	}
	if f.kind == KindKill {
		if err := r.start(p.index, p.life+1); err != nil {
			r.note("the successor of worker process %s: %v", p.name, err)
			r.abort(err)
		}
	}
}

// aftermath is how long a client may be deaf after its connections can be made again: what waits for news connects anew
// once a second at the latest when it has failed for a while. Until then it may be passed over in line.
const aftermath = 2 * time.Second

// settle calls healed when the aftermath of a fault is over, or no worker is left to see it.
func (r *run) settle(healed func()) {
	t := time.NewTimer(aftermath)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.quiet:
	}
	healed()
}

// met waits until the fault that began then has met load.
func (r *run) met(ctx context.Context, begin int64) {
	r.await(ctx, meetLimit, func() bool { return r.loaded(begin) })
}

// doStop stops p for so long.
func (r *run) doStop(ctx context.Context, p *process, id string, length time.Duration) {
	// Who stops inside a transaction on a file keeps everybody from it.
	shared := history.Event{Kind: history.Fault, ID: id + "s", Target: "the file", Text: "stopped inside"}
	if !r.remote {
		r.met(ctx, r.rec.Record(shared))
	}
	if err := stop(p.cmd.Process); err != nil {
		return // it has ended
	}
	pause(ctx, length)
	_ = goOn(p.cmd.Process)
	if !r.remote {
		shared.Kind, shared.Text = history.Healed, ""
		r.rec.Record(shared)
	}
}

// doRelay spoils the connections of p for a while.
func (r *run) doRelay(ctx context.Context, p *process, f planned) {
	h := harm{process: p.name}
	if all := r.relay.addresses(); f.server >= 0 && len(all) > 1 {
		h.address = all[f.server%len(all)]
	}
	length := r.times(f.length)
	switch f.kind {
	case KindDelay:
		late := time.Duration(f.lateBy * float64(mostLate(r.ttl)))
		h.mode, h.delay, h.jitter = slow, late/2, late/2
	case KindCut:
		h.mode = holdRequests | holdReplies
	case KindCutRequests:
		h.mode = holdRequests
	case KindForget:
		h.mode, h.old = holdRequests|holdReplies, true
	case KindLate:
		h.mode, h.old = holdRequests|keep, true
	case KindCutReplies:
		h.mode = holdReplies
	case KindRefuse:
		h.mode = refuse
	case KindDropReplies:
		h.mode = dropReplies
	case KindReset:
		for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
			r.relay.reset(h)
			pause(ctx, 20*time.Millisecond+rand.N(200*time.Millisecond))
		}
		return
	}
	heal := r.relay.begin(h)
	pause(ctx, length)
	heal()
}

// ownLimit bounds how long a fault of the caller's may take to begin, and to end.
const ownLimit = 2 * time.Minute

// doOwn does a fault of the caller's. What was begun is ended, also when the run is to end.
func (r *run) doOwn(ctx context.Context, f Fault, length time.Duration) {
	whole := context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(whole, ownLimit)
	defer cancel()
	heal, err := f.Inject(limited)
	if err != nil {
		r.note("fault %s could not be done: %v", f.Kind, err)
	} else {
		pause(ctx, length)
	}
	if heal == nil {
		return
	}
	limited, cancel = context.WithTimeout(whole, ownLimit)
	defer cancel()
	if err := heal(limited); err != nil {
		r.note("fault %s could not be ended: %v", f.Kind, err)
	}
}

// keepSaying tells how far it is until ctx ends.
func (r *run) keepSaying(ctx context.Context, begin time.Time) {
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errEnough) {
				r.Say(open.Scrub("ending early: "+cause.Error(), r.URL))
			}
			return
		case <-tick.C:
		}
		r.mu.Lock()
		t, now := r.totals(), strings.Join(r.now, ", ")
		r.mu.Unlock()
		if now != "" {
			now = "; now " + now
		}
		r.Say(fmt.Sprintf("%v: %d grants (%d/s), %d waiting, %d faults%s", time.Since(begin).Round(time.Second), t.Grants,
			(t.Grants-before)/int64(sayEvery/time.Second), t.Waiting, r.done(), now))
		before = t.Grants
	}
}
