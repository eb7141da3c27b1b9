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

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/relay"
	"github.com/holdfast-lock/holdfast/open"
)

// Parts of the whole duration: the first fault begins after faultsFrom, the last before
// faultsUntil.
const (
	faultsFrom  = 0.15
	faultsUntil = 0.8
)

// progressInterval is the time between two progress messages.
const progressInterval = 3 * time.Second

// exercise lets the workers work, and injects the faults. Time without faults comes first, between
// faults, and last, so that recovery can be observed. A machine too slow to prove anything gets as
// long again.
func (r *run) exercise(ctx context.Context) {
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { r.reportProgress(ctx, begin) })
	defer reporting.Wait()
	defer cancel(errEnough)
	part := func(f float64) time.Time { return begin.Add(time.Duration(f * float64(r.Duration))) }
	pause(ctx, time.Until(part(faultsFrom)))
	if len(r.kinds)+len(r.Faults) > 0 {
		s := newSchedule(r.Seed, r.kinds, r.Faults, r.Processes)
		s.beside = r.Beside
		n := 0
		for next := s.next(); ctx.Err() == nil && (time.Now().Before(part(faultsUntil)) || r.fewFaults() &&
			time.Now().Before(part(2*faultsUntil))); next = s.next() {
			var done sync.WaitGroup
			for _, p := range next.faults {
				n++
				id := fmt.Sprintf("f%d", n)
				done.Go(func() { r.inject(ctx, id, p) })
			}
			done.Wait()
			pause(ctx, r.times(next.gap))
		}
	}
	pause(ctx, max(time.Until(part(1)), r.ttl))
	r.await(ctx, r.Duration, r.enoughGrants)
}

// done returns the number of faults so far. Called with r.mu held.
func (r *run) done() (n int) {
	for _, k := range r.faults {
		n += k
	}
	return n
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// times returns f TTLs.
func (r *run) times(f float64) time.Duration { return time.Duration(f * float64(r.ttl)) }

// loadLimit bounds how long a fault waits for load, plus a TTL. Without load the fault is injected
// all the same, and the judge reports that it met none.
const loadLimit = 5 * time.Second

// preferLimit bounds the wait for a process that holds and waits.
const preferLimit = 500 * time.Millisecond

// inject injects one fault, and returns after it has healed.
func (r *run) inject(ctx context.Context, id string, f planned) {
	r.mu.Lock()
	p := r.workers[f.process]
	r.mu.Unlock()
	// A process that holds a lock and waits for others has the most to lose, so it is preferred.
	// Otherwise the load of all processes is enough.
	begin := history.Now()
	r.await(ctx, preferLimit, func() bool {
		now := p.progress()
		return f.own >= 0 || p.running() && now.T > begin && now.Holding > 0 && now.Waiting > 0
	})
	r.await(ctx, loadLimit+r.ttl, func() bool { return r.loaded(begin) && (f.own >= 0 || p.running()) })
	if ctx.Err() != nil {
		return
	}
	target := p.name
	if f.own >= 0 {
		if target = r.Faults[f.own].Target; target == "" {
			target = "the store"
		}
	} else if !p.running() {
		return // it has ended by itself, and its successor has not started
	}
	r.mu.Lock()
	r.faults[f.kind]++
	if f.own < 0 {
		r.hit.add(p.external != nil)
	}
	now := f.kind + " of " + target
	r.activeFaults = append(r.activeFaults, now)
	r.mu.Unlock()
	begin = r.rec.Record(history.Event{Kind: history.Fault, ID: id, Target: target, Text: f.kind})
	if f.kind == KindKill || f.own >= 0 || !r.remote {
		r.awaitLoad(ctx, begin) // during the fault no worker may make progress
	}
	switch {
	case f.own >= 0:
		r.doOwn(ctx, r.Faults[f.own], r.times(f.length))
	case f.kind == KindStop:
		r.doStop(ctx, p, id, r.times(f.length))
	case f.kind == KindKill:
		r.killWorker(p)
	default:
		r.doRelay(ctx, p, f)
	}
	r.awaitLoad(ctx, begin)
	healed := func() { r.rec.Record(history.Event{Kind: history.Healed, ID: id, Target: target}) }
	r.mu.Lock()
	r.activeFaults = slices.DeleteFunc(r.activeFaults, func(s string) bool { return s == now })
	r.mu.Unlock()
	if r.remote && f.kind != KindStop && f.kind != KindKill {
		r.followers.Go(func() { r.healLater(healed) })
	} else {
		healed()
	}
	if f.kind == KindKill {
		if err := r.start(p.index, p.runNumber+1); err != nil {
			r.note("the successor of worker process %s: %v", p.name, err)
			r.abort(err)
		}
	}
}

// reconnectTime is how long a client may miss pushes after its connections work again. After a
// longer failure, subscriptions reconnect once a second at the latest. Until then the queue may
// pass the client over.
const reconnectTime = 2 * time.Second

// healLater calls healed after reconnectTime, or when no worker is left.
func (r *run) healLater(healed func()) {
	t := time.NewTimer(reconnectTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.allEnded:
	}
	healed()
}

// awaitLoad waits until the fault that started at begin has met load.
func (r *run) awaitLoad(ctx context.Context, begin int64) {
	r.await(ctx, loadLimit, func() bool { return r.loaded(begin) })
}

// doStop stops p for the given time.
func (r *run) doStop(ctx context.Context, p *process, id string, length time.Duration) {
	// A process stopped inside a transaction on a file blocks all others.
	shared := history.Event{Kind: history.Fault, ID: id + "s", Target: "the file", Text: "stopped inside"}
	if !r.remote {
		r.awaitLoad(ctx, r.rec.Record(shared))
	}
	if err := stop(p.cmd.Process); err != nil {
		return // it has ended
	}
	pause(ctx, length)
	_ = resume(p.cmd.Process)
	if !r.remote {
		shared.Kind, shared.Text = history.Healed, ""
		r.rec.Record(shared)
	}
}

// doRelay disturbs the connections of p for a while.
func (r *run) doRelay(ctx context.Context, p *process, f planned) {
	h := relay.Impairment{Client: p.name}
	if all := r.relay.addresses(); f.server >= 0 && len(all) > 1 {
		h.Server = all[f.server%len(all)]
	}
	length := r.times(f.length)
	switch f.kind {
	case KindDelay:
		late := time.Duration(f.lateBy * float64(maxDelay(r.ttl)))
		h.Mode, h.Delay, h.Jitter = relay.Slow, late/2, late/2
	case KindCut:
		h.Mode = relay.Hold
	case KindCutRequests:
		h.Mode = relay.HoldRequests
	case KindForget:
		h.Mode, h.Old = relay.Hold, true
	case KindLate:
		h.Mode, h.Old = relay.HoldRequests|relay.Keep, true
	case KindCutReplies:
		h.Mode = relay.HoldReplies
	case KindRefuse:
		h.Mode = relay.Refuse
	case KindDropReplies:
		h.Mode = relay.ResetReplies
	case KindReset:
		for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
			r.relay.Reset(h.Client, h.Server)
			pause(ctx, 20*time.Millisecond+rand.N(200*time.Millisecond))
		}
		return
	}
	heal := r.relay.Begin(h)
	pause(ctx, length)
	heal()
}

// ownLimit bounds how long a fault of the caller's may take to begin, and to end.
const ownLimit = 2 * time.Minute

// doOwn injects a fault of the caller's. It ends each fault that it began, even if ctx has ended.
func (r *run) doOwn(ctx context.Context, f Fault, length time.Duration) {
	whole := context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(whole, ownLimit)
	defer cancel()
	heal, err := f.Inject(limited)
	if err != nil {
		r.note("fault %s could not be injected: %v", f.Kind, err)
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

// reportProgress reports the progress until ctx ends.
func (r *run) reportProgress(ctx context.Context, begin time.Time) {
	tick := time.NewTicker(progressInterval)
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
		t, n, now := r.totals(), r.done(), strings.Join(r.activeFaults, ", ")
		r.mu.Unlock()
		if now != "" {
			now = "; now " + now
		}
		r.Say(fmt.Sprintf("%v: %d grants (%d/s), %d waiting, %d faults%s", time.Since(begin).Round(time.Second), t.Grants,
			(t.Grants-before)/int64(progressInterval/time.Second), t.Waiting, n, now))
		before = t.Grants
	}
}
