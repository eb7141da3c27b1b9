package drivertest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// damages are the checks of a store with a damaged record.
var damages = []check{
	{
		"R15", "a damaged lock",
		"a damaged record of a lock affects nothing else: others are renewed, granted, handed over and listed", func(e *env) {
			e.damages(func(a, b *peer) (driver.Hold, *waiter) { return a.get(a.req("m/bad")), b.joinQueue(b.req("m/bad")) })
		}},
	{"R15", "a damaged read lock", "a damaged record of a shared lock affects nothing else", func(e *env) {
		e.damages(func(a, b *peer) (driver.Hold, *waiter) { return a.get(a.shared("m/bad")), b.joinQueue(b.req("m/bad")) })
	}},
	{"R15", "a damaged semaphore", "a damaged record of a semaphore affects nothing else", func(e *env) {
		e.damages(func(a, b *peer) (driver.Hold, *waiter) {
			return a.get(a.permits("m/bad", 1, 2)), b.joinQueue(b.permits("m/bad", 2, 2))
		})
	}},
	{"R15", "a damaged latch", "a damaged record of a latch affects nothing else", func(e *env) {
		e.damages(func(a, _ *peer) (driver.Hold, *waiter) {
			a.newLatch("m/bad", 2)
			return driver.Hold{Name: e.name("m/bad")}, nil
		})
	}},
	{"R15", "a damaged lease of a client", "a lease whose record was damaged ends; all others of the client remain",
		func(e *env) {
			e.useExpiry()
			e.damagedLeases()
		}},
}

// damagedLeases damages the records of some leases of a client, in each possible way.
func (e *env) damagedLeases() {
	e.Helper()
	ways := e.damageWays()
	renewed := make(chan error, 100)
	a, b := e.clientOn(e.conn(), &holdfast.Config{TTL: steadyTTL, Observer: &holdfast.Observer{
		Renewed: func(_ int, _ time.Duration, err error) {
			select {
			case renewed <- err:
			default:
			}
		},
	}}), e.client(nil)
	bad := map[string]*holdfast.Lease{}
	var others []*holdfast.Lease
	for _, way := range ways {
		bad[way] = e.lock(a, "bad-"+way)
		others = append(others, e.lock(a, "good-"+way))
	}
	for _, way := range ways {
		e.h.Damage[way](e.TB, bad[way].Name())
	}
	for _, way := range ways {
		select {
		case <-bad[way].Done():
		case <-time.After(patience):
			e.Fatalf("the lease whose record was damaged (%s) is still valid", way)
		}
		if err := bad[way].Err(); !errors.Is(err, holdfast.ErrLost) {
			e.Errorf("Err: %v; want ErrLost", err)
		}
		if _, err := b.Mutex(bad[way].Name()).TryLock(e.ctx); !errors.Is(err, holdfast.ErrDamaged) {
			e.Errorf("TryLock of the damaged name (%s): %v; want ErrDamaged", way, err)
		}
	}
	for len(renewed) > 0 {
		<-renewed
	}
	for end := time.After(patience); len(ways) > 0; {
		select {
		case err := <-renewed:
			if err != nil {
				continue
			}
		case <-end:
			e.Fatal("no renewal of the other leases succeeds")
		}
		break
	}
	for _, l := range others {
		if err := errors.Join(l.Err(), l.Release()); err != nil {
			e.Errorf("%q with damaged records of other names: %v", l.Name(), err)
		}
	}
}

// damages damages the record of the name that take uses, and checks all other names.
func (e *env) damages(take func(a, b *peer) (driver.Hold, *waiter)) {
	e.Helper()
	e.eachDamage(func(damage func(string)) {
		a, b := e.peer(), e.peer()
		waited := a.get(a.req("m/waited"))
		good := []driver.Hold{a.get(a.req("m/a")), waited, a.get(a.shared("m/c"))}
		if !e.locksOnly() {
			good = append(good, a.get(a.permits("m/s", 2, 3)))
		}
		bad, lost := take(a, b)
		w := b.joinQueue(b.req("m/waited"))
		damage("m/bad")

		holds := good
		if bad.Token != 0 { // a latch has no grant
			holds = slices.Insert(slices.Clone(good), 1, bad)
		}
		e.onlyGone(a, holds, bad)
		places := []driver.Hold{place(w.r)}
		if lost != nil {
			places = append(places, place(lost.r))
			e.onlyGone(b, places, place(lost.r))
		} else {
			e.onlyGone(b, places, driver.Hold{})
		}

		e.isDamaged(a, b, bad)
		e.listsDamaged(b, good, bad)
		b.release(b.get(once(b.req("m/new"))))
		a.release(waited)
		b.release(w.granted())
		e.onlyGone(a, good[2:], driver.Hold{})
	})
}

// onlyGone renews holds: only bad is Gone, or none if bad is zero.
func (e *env) onlyGone(p *peer, holds []driver.Hold, bad driver.Hold) {
	e.Helper()
	changes, err := p.Renew(e.ctx, holds)
	if err != nil {
		e.Fatalf("Renew together with a damaged record: %v", err)
	}
	gone := false
	for _, ch := range changes {
		switch {
		case holds[ch.Index] == bad && ch.State == driver.Gone:
			gone = true
		case holds[ch.Index] == bad, ch.State != driver.Waiting:
			e.Errorf("Renew of %+v = %+v; want Gone for the damaged one only", holds[ch.Index], ch)
		}
	}
	if bad.Name != "" && !gone && slices.Contains(holds, bad) {
		e.Errorf("Renew reports nothing about %+v, whose record is damaged; want Gone", bad)
	}
}

// isDamaged makes the calls that need the record of bad.
func (e *env) isDamaged(a, b *peer, bad driver.Hold) {
	e.Helper()
	calls := map[string]func() error{
		"Acquire":         func() error { _, err := b.Acquire(e.ctx, b.req("m/bad")); return err },
		"Acquire at once": func() error { _, err := b.Acquire(e.ctx, once(b.shared("m/bad"))); return err },
		"Inspect":         func() error { _, err := b.Inspect(e.ctx, bad.Name); return err },
		"Break":           func() error { return b.Break(e.ctx, bad.Name, max(bad.Token, 1)) },
		"Release":         func() error { return a.Release(e.ctx, bad, 0) },
	}
	if !e.locksOnly() {
		held := driver.Hold{Name: bad.Name, ID: bad.ID, Token: max(bad.Token, 1)}
		calls["Reduce"] = func() error { return a.Reduce(e.ctx, held, 1) }
		calls["SetLimit"] = func() error { return b.SetLimit(e.ctx, bad.Name, 5) }
		calls["SetCount"] = func() error { _, err := b.SetCount(e.ctx, bad.Name, 5); return err }
		calls["CountDown"] = func() error { _, err := b.CountDown(e.ctx, bad.Name, "c-1"); return err }
		calls["RemoveLatch"] = func() error { return b.RemoveLatch(e.ctx, bad.Name) }
		calls["Await"] = func() error { _, err := b.Await(e.ctx, bad.Name, "w-1"); return err }
	}
	for _, what := range slices.Sorted(maps.Keys(calls)) {
		if err := calls[what](); !errors.Is(err, driver.ErrDamaged) {
			e.Errorf("%s of the damaged name: %v; want ErrDamaged", what, err)
		}
	}
}

// listsDamaged checks that List marks the damaged name, and shows all others unchanged.
func (e *env) listsDamaged(p *peer, good []driver.Hold, bad driver.Hold) {
	e.Helper()
	list, err := p.List(e.ctx, e.name("m/"), "", 100)
	if err != nil {
		e.Fatalf("List beside a damaged record: %v", err)
	}
	want := []string{bad.Name}
	for _, h := range good {
		want = append(want, h.Name)
	}
	slices.Sort(want)
	var got []string
	for _, rec := range list {
		got = append(got, rec.Name)
		switch {
		case rec.Name == bad.Name:
			if rec.Damaged == "" || rec.Kind != driver.Unused || len(rec.Holders) > 0 || rec.Token != 0 {
				e.Errorf("List shows the damaged name as %+v", rec)
			}
		case rec.Damaged != "" || rec.Kind == driver.Unused || len(rec.Holders) == 0:
			e.Errorf("List shows %q beside a damaged record as %+v", rec.Name, rec)
		}
	}
	if !slices.Equal(got, want) {
		e.Errorf("List beside a damaged record = %q; want %q", got, want)
	}
	if page, err := p.List(e.ctx, e.name("m/"), want[0], 1); err != nil || len(page) != 1 || page[0].Name != want[1] {
		e.Errorf("List of one name after the first beside a damaged record = %+v, %v; want %q", page, err, want[1])
	}
}

// eachDamage runs f once for each way to damage a record.
func (e *env) eachDamage(f func(damage func(name string))) {
	e.Helper()
	prefix := e.prefix
	defer func() { e.prefix = prefix }()
	for _, way := range e.damageWays() {
		e.prefix = prefix + strings.ToLower(way) + "/"
		func() {
			passed := false
			defer func() {
				if !passed {
					e.Logf("with a record damaged: %s", way)
				}
			}()
			f(func(name string) { e.h.Damage[way](e.TB, e.name(name)) })
			passed = !e.Failed()
		}()
	}
}

// damageWays returns the ways to damage a record.
func (e *env) damageWays() []string {
	e.Helper()
	if len(e.h.Damage) == 0 {
		e.Logf("nobody can damage a record of the store: %s", e.h.CannotDamage)
	}
	return slices.Sorted(maps.Keys(e.h.Damage))
}
