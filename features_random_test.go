package holdfast

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// features is calls of several clients that use every feature on one name.
type features struct {
	t     *testing.T
	seed  uint64
	store *memlock.Store
	users []stickyUser
	stop  chan struct{}

	mu     sync.Mutex
	inside map[*Lease]bool // and whether it is for reading
	last   uint64          // the largest token of a writer
	high   uint64          // the largest of all
	leases int
	broken bool // an operator has ended a grant: its holder learns that later
}

func newFeatures(t *testing.T, seed uint64) *features {
	r := &features{t: t, seed: seed, store: memlock.New(), inside: map[*Lease]bool{}, stop: make(chan struct{})}
	for i := range uint64(3) {
		s := &lateStore{&faultyStore{Store: r.store, rng: rand.New(rand.NewPCG(seed, i))}, seed%2 == 0, r.stop}
		c, err := newClient(t.Context(), s, &Config{TTL: faultyTTL}, func() time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		r.users = append(r.users, stickyUser{c, s.faultyStore, true})
	}
	return r
}

// enter checks that l may be held beside the others. again: its token was used before it was handed off.
func (r *features) enter(l *Lease, again bool) {
	mode, _ := l.grant()
	reads := mode == driver.Shared
	r.mu.Lock()
	defer r.mu.Unlock()
	valid := l.Err() == nil
	for x := range r.inside {
		m, _ := x.grant()
		if !r.broken && valid && x.Err() == nil && (!reads || m != driver.Shared) {
			r.t.Errorf("seed %d: both %s %d (%v) and %s %d (%v) are held", r.seed, x.op, x.Token(), m, l.op, l.Token(), mode)
		}
	}
	switch {
	case !valid || again || r.broken:
	case reads && l.Token() <= r.last, !reads && l.Token() <= r.high:
		r.t.Errorf("seed %d: token %d (%v) after %d, %d", r.seed, l.Token(), mode, r.last, r.high)
	}
	r.high = max(r.high, l.Token())
	if !reads {
		r.last = max(r.last, l.Token())
	}
	r.inside[l] = true
	r.leases++
}

func (r *features) leave(l *Lease) {
	r.mu.Lock()
	delete(r.inside, l)
	r.mu.Unlock()
}

func (r *features) round(u stickyUser) {
	ctx, cancel := r.t.Context(), func() {}
	if u.s.chance(4) {
		ctx, cancel = context.WithTimeout(ctx, u.s.pause(40*time.Millisecond))
	}
	defer cancel()
	var opts []Option
	if u.s.chance(10) {
		opts = append(opts, Note("another cohort"))
	}
	if u.s.chance(10) {
		opts = append(opts, WaitAtMost(1+u.s.pause(30*time.Millisecond)))
	}
	if u.s.chance(12) {
		opts = append(opts, MaxHold(1+u.s.pause(20*time.Millisecond)))
	}
	if u.s.chance(12) {
		opts = append(opts, Fair())
	}
	var l *Lease
	var err error
	var multi *MultiLease
	short := Sticky(20 * time.Millisecond)
	rw := u.c.RWMutex("x", opts...)
	switch u.s.pick(12) {
	case 0, 1, 2:
		l, err = rw.RLock(ctx)
	case 3:
		l, err = rw.Lock(ctx)
	case 4:
		l, err = rw.TryRLock(ctx)
	case 5:
		l, err = u.c.Mutex("x", opts...).TryLock(ctx)
	case 6:
		multi, err = LockAll(ctx, u.c.Mutex("w", opts...), rw.Reader(), u.c.Mutex("y", short))
	case 7:
		multi, err = LockAll(ctx, u.c.Mutex("w", short), u.c.Mutex("x", short), u.c.Mutex("y"))
	case 8, 9, 10:
		l, err = u.c.Mutex("x", short).Lock(ctx)
	default:
		l, err = u.c.Mutex("x", opts...).Lock(ctx)
	}
	if err != nil {
		return
	}
	if multi != nil {
		for _, x := range multi.Leases() {
			if x.Name() == "x" {
				l = x
			}
		}
	}
	r.enter(l, false)
	if u.s.chance(3) {
		l.Context(context.Background())
	}
	if u.s.chance(3) {
		time.Sleep(u.s.pause(3 * time.Millisecond))
	}
	if u.s.chance(60) {
		time.Sleep(2 * faultyTTL)
	}
	if multi != nil {
		r.leave(l)
		_ = multi.Release()
		return
	}
	r.finish(u, l, 0)
	if u.s.chance(3) {
		time.Sleep(u.s.pause(40 * time.Millisecond))
	}
}

func (r *features) finish(u stickyUser, l *Lease, depth int) {
	pause := func() {
		if u.s.chance(2) {
			time.Sleep(u.s.pause(5 * time.Millisecond))
		}
	}
	switch u.s.pick(14) {
	case 0:
		r.leave(l)
		_ = l.ReleaseNow()
	case 1:
		text, err := l.Ticket()
		pause()
		if err == nil && u.s.chance(2) {
			r.leave(l) // the earlier holder does no more work
			v := r.users[u.s.pick(3)]
			if a, err := v.c.Resume(r.t.Context(), text); err == nil {
				r.takeOver(v, a, depth)
			}
		}
	case 2, 3:
		_ = l.Downgrade()
		pause()
		if u.s.chance(2) {
			_ = l.Extend(1 + u.s.pause(20*time.Millisecond))
			pause()
		}
	case 4:
		_ = l.Extend(1 + u.s.pause(20*time.Millisecond))
		pause()
		_ = l.Extend(faultyTTL)
	case 5:
		rw := u.c.RWMutex("x", Reentrant(), MaxHold(3*time.Millisecond))
		if b, err := rw.RLock(l.Context(context.Background())); err == nil {
			pause()
			_ = b.Release()
		}
	}
	if u.s.chance(4) {
		r.leave(l)
		text, _, err := l.HandOff()
		pause()
		if err == nil && !u.s.chance(4) {
			ctx, cancel := r.t.Context(), func() {}
			if u.s.chance(3) {
				ctx, cancel = context.WithTimeout(ctx, u.s.pause(10*time.Millisecond))
			}
			v := r.users[u.s.pick(3)]
			a, err := v.c.Adopt(ctx, text)
			cancel()
			if err == nil {
				r.takeOver(v, a, depth)
			}
		}
	}
	r.leave(l)
	_ = l.Release()
}

// takeOver continues with a, which u has taken from another holder.
func (r *features) takeOver(u stickyUser, a *Lease, depth int) {
	r.enter(a, true)
	if u.s.chance(2) {
		time.Sleep(u.s.pause(5 * time.Millisecond))
	}
	if depth < 3 {
		r.finish(u, a, depth+1)
		return
	}
	r.leave(a)
	_ = a.Release()
}

func (r *features) disturb() {
	rng := rand.New(rand.NewPCG(r.seed, 99))
	for {
		select {
		case <-r.stop:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))):
		}
		u := r.users[rng.IntN(3)]
		r.look(u, rng)
		switch rng.IntN(9) {
		case 5:
			if r.seed%4 == 1 && rng.IntN(4) == 0 {
				_ = u.c.Close(context.Background())
			}
		case 6:
			if x, err := r.store.Inspect(r.t.Context(), "x"); err == nil && len(x.Holders) > 0 && r.seed%3 == 0 {
				r.mu.Lock()
				r.broken = true
				r.mu.Unlock()
				_ = u.c.Break(r.t.Context(), "x", x.Holders[0].Token, "")
			}
		case 0:
			u.s.down.Store(true)
			time.Sleep(time.Duration(rng.Int64N(int64(2 * faultyTTL))))
			u.s.down.Store(false)
		case 1:
			u.s.lose()
		case 2:
			if x, err := r.store.Inspect(r.t.Context(), "x"); err == nil && len(x.Holders) > 0 {
				_ = u.c.Revoke(r.t.Context(), "x", x.Holders[0].Token, "")
			}
		case 3:
			for _, id := range u.grants() {
				u.c.calledBack("x", id)
			}
		case 4:
			if x, err := r.store.Inspect(r.t.Context(), "x"); err == nil && len(x.Holders) > 0 {
				u.c.doubts.add("x")
			}
		}
	}
}

// Callers use every feature on one name, while stores fail, exchanges arrive late, sessions end and operators
// interfere. They exclude each other, tokens grow, and nothing is left.
func TestFeaturesAtRandom(t *testing.T) {
	leases := 0
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			r := newFeatures(t, seed)
			var disturber, all sync.WaitGroup
			disturber.Go(r.disturb)
			for i := range 15 {
				all.Go(func() {
					for range 25 {
						r.round(r.users[i%3])
					}
				})
			}
			all.Wait()
			close(r.stop)
			disturber.Wait()
			time.Sleep(12 * faultyTTL)
			checkNothingLeft(t, seed, r.store, r.users)
			for _, u := range r.users {
				_ = u.c.Close(context.Background())
				u.s.calls.Wait()
			}
			leases += r.leases
		})
	}
	if leases < 1000 {
		t.Errorf("only %d leases", leases)
	}
}

// look asks for everything that can be looked at.
func (r *features) look(u stickyUser, rng *rand.Rand) {
	_, _, _ = u.c.Held(), u.c.Wanted(), u.c.Health()
	var all []*Lease
	r.mu.Lock()
	for l := range r.inside {
		all = append(all, l)
	}
	r.mu.Unlock()
	for _, l := range all {
		_, _, _, _, _ = l.Left(), l.Valid(time.Millisecond), l.Why(), l.Revocation(), l.Permits()
		ctx := l.Context(context.Background())
		_, _ = Revoked(ctx), Token(ctx)
		switch rng.IntN(10) {
		case 0:
			_ = l.Extend(1 + time.Duration(rng.Int64N(int64(50*time.Millisecond))))
		case 1:
			go func() { _ = l.Release() }()
		case 2:
			go func() { _, _ = l.Ticket() }()
		case 3:
			if l.Left() > 0 && l.Err() == nil {
				_ = l.Done()
			}
		}
	}
}
