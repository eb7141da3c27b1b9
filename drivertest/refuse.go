package drivertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// refusals runs f once for each way in which the store can refuse writes.
func (e *env) refusals(f func(refuse func() (heal func()))) {
	e.Helper()
	if len(e.h.Refuse) == 0 {
		e.Logf("the store cannot refuse writes: %s", e.h.CannotRefuse)
		return
	}
	prefix := e.prefix
	defer func() { e.prefix = prefix }()
	for _, way := range slices.Sorted(maps.Keys(e.h.Refuse)) {
		e.prefix = prefix + strings.ToLower(way) + "/"
		func() {
			heals := func() {}
			passed := false
			defer func() {
				heals()
				if !passed {
					e.Logf("while the store refused writes: %s", way)
				}
			}()
			probe := e.peer()
			f(func() func() {
				heals = sync.OnceFunc(e.h.Refuse[way](e.TB))
				free := once(probe.req("free"))
				if !e.isRefused("Acquire", func(ctx context.Context) error { _, err := probe.Acquire(ctx, free); return err }) {
					e.Fatal("drivertest: the harness's Refuse lets a free name be acquired")
				}
				return func() {
					heals()
					heals = func() {}
					probe.release(probe.retryGet(once(probe.req("probe")))) // the store accepts writes again
				}
			})
			passed = !e.Failed()
		}()
	}
}

// isRefused makes a call that has to write, and reports whether the store refused it with the right
// error. A store may refuse some writes and not others: it has then done what it reports, and the
// pushes to these waiters are on record.
func (e *env) isRefused(what string, call func(context.Context) error, waiters ...*waiter) bool {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	switch err := call(ctx); {
	case err == nil:
		for end := time.Now().Add(quiet); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			for _, w := range waiters {
				w.readPush()
			}
		}
		return false
	case !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrUnavailable):
		e.Fatalf("%s while the store refused writes: %v; want ErrRefused or ErrUnavailable", what, err)
	}
	return true
}

// repeatRefused repeats a call that was refused, when the store accepts writes again: only the
// repeat may do it.
func (e *env) repeatRefused(what string, call func(context.Context) error) {
	e.Helper()
	tries := 0
	e.eventually(func(ctx context.Context) bool {
		tries++
		err := call(ctx)
		if tries == 1 && driver.IsOver(err) && !(e.h.Insists && what == "Release") {
			e.Fatalf("%s after it was refused: %v; the refused call must not have done it", what, err)
		}
		return err == nil || driver.IsOver(err)
	})
}

// mustNotGrant sends an Acquire while the store refuses writes: a held name is answered or refused,
// never granted.
func (e *env) mustNotGrant(p *peer, r *driver.Request) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	reply, err := p.Acquire(ctx, r)
	if reply.Token != 0 {
		e.Fatalf("Acquire(%q) was granted token %d (%v) while the store refused writes", r.Name, reply.Token, err)
	}
	if err != nil && !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrUnavailable) {
		e.Fatalf("Acquire(%q) while the store refused writes: %v; want ErrRefused or ErrUnavailable", r.Name, err)
	}
}

// mustNotRenew sends a Renew while the store refuses writes: it ends nothing. If the store reports
// that the grants are renewed, they are.
func (e *env) mustNotRenew(p *peer, holds ...driver.Hold) {
	e.Helper()
	const pause = 100 * time.Millisecond
	before := e.grantEnds(holds, false)
	time.Sleep(pause)
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	changes, err := p.Renew(ctx, holds)
	if err != nil {
		if !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrUnavailable) {
			e.Fatalf("Renew while the store refused writes: %v; want ErrRefused or ErrUnavailable", err)
		}
		return
	}
	after := e.grantEnds(holds, true)
	for i, h := range holds {
		j := slices.IndexFunc(changes, func(ch driver.Change) bool { return ch.Index == i })
		if j >= 0 && changes[j].State != driver.Unknown && changes[j].State != driver.Waiting {
			e.Fatalf("Renew of %+v while the store refused writes: %+v; want an error, or Unknown", h, changes[j])
		}
		if j < 0 && h.Token != 0 && after[i].Before(before[i].Add(pause/2)) {
			e.Fatalf("Renew of %+v while the store refused writes reports success; the lease ends at %v, and at %v before", h,
				after[i], before[i])
		}
	}
}

// grantEnds returns when each of the grants ends by the record: not before that time, or if late
// not after it. The machine may be slow between the two readings.
func (e *env) grantEnds(holds []driver.Hold, late bool) (ends []time.Time) {
	e.Helper()
	for _, h := range holds {
		now := time.Now()
		rec, err := e.healthy().Inspect(e.ctx, h.Name)
		if err != nil {
			e.Fatalf("Inspect while the store refused writes: %v", err)
		}
		if late {
			now = time.Now()
		}
		for _, o := range rec.Holders {
			if o.ID == h.ID {
				now = now.Add(o.Left)
			}
		}
		ends = append(ends, now)
	}
	return ends
}

// stillHeld checks that the record is unchanged: h is held, and the queue has waiting places.
func (e *env) stillHeld(p *peer, h driver.Hold, waiting int) {
	e.Helper()
	rec, err := p.Inspect(e.ctx, h.Name)
	if err != nil {
		e.Fatalf("Inspect while the store refused writes: %v", err)
	}
	if len(rec.Holders) != 1 || rec.Holders[0].ID != h.ID || rec.Holders[0].Token != h.Token || rec.Waiting != waiting {
		e.Fatalf("Inspect = %+v; want token %d held as before, and %d waiting", rec, h.Token, waiting)
	}
}
