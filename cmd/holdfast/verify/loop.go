package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/history"
)

// patience bounds every wait. A wait that takes so long has failed.
const patience = 60 * time.Second

// loop is a goroutine that takes one lock after the other.
type loop struct {
	w      *worker
	m      *member
	number int
	rng    *rand.Rand
	n      int // attempts so far
	fence  fence
	pause  time.Duration // after a call that failed

	waiting atomic.Int64 // since when it stands in line; 0: it does not
	holding atomic.Bool
}

// wish is a lock to ask for, and how.
type wish struct {
	kind    kind
	name    string
	mode    driver.Mode
	n       int
	wait    bool
	patient bool // it waits as long as it takes
	reader  bool // the lock becomes one for reading after a while
}

// kind is a kind of lock.
type kind int

const (
	mutexes kind = iota
	readWrites
	semaphores
	allKinds
)

// permits is the limit of every semaphore.
const permits = 3

// run takes locks until ctx ends.
func (l *loop) run(ctx context.Context) {
	defer l.fence.close()
	for ctx.Err() == nil {
		l.once(ctx, l.wish())
		if pause := max(l.pause, l.w.job.Pause); pause > 0 {
			rest(ctx, pause/2+time.Duration(l.rng.Int64N(int64(pause))))
		}
	}
}

// wish draws the next lock.
func (l *loop) wish() wish {
	number := l.rng.IntN(l.w.job.Names)
	w := wish{mode: driver.Exclusive, n: 1, wait: true, patient: true}
	word := "mutex/"
	switch d := l.rng.IntN(12); {
	case l.w.job.Mix == MixMutex || d < 6:
	case d < 10 && !l.w.without[readWrites].Load():
		w.kind, word = readWrites, "rw/"
		if l.rng.IntN(2) == 0 {
			w.mode = driver.Shared
		}
		w.reader = w.mode == driver.Exclusive && l.rng.IntN(3) == 0
	case d >= 10 && !l.w.without[semaphores].Load():
		w.kind, w.mode, word = semaphores, driver.Permits, "semaphore/"
		w.n = 1 + l.rng.IntN(2)
	}
	w.name = l.w.job.Prefix + word + strconv.Itoa(number)
	if l.slow() {
		w.name = l.w.job.Prefix + word + "slow"
	}
	switch l.rng.IntN(20) {
	case 0, 1:
		w.wait = false
	case 2:
		w.patient = false
	}
	return w
}

// take asks for the lock.
func (l *loop) take(ctx context.Context, w wish) (*holdfast.Lease, error) {
	c := l.m.client
	switch {
	case w.kind == semaphores && w.wait:
		return c.Semaphore(w.name, permits).Acquire(ctx, w.n)
	case w.kind == semaphores:
		return c.Semaphore(w.name, permits).TryAcquire(ctx, w.n)
	case w.mode == driver.Shared && w.wait:
		return c.RWMutex(w.name).RLock(ctx)
	case w.mode == driver.Shared:
		return c.RWMutex(w.name).TryRLock(ctx)
	case w.kind == readWrites && w.wait:
		return c.RWMutex(w.name).Lock(ctx)
	case w.kind == readWrites:
		return c.RWMutex(w.name).TryLock(ctx)
	case w.wait:
		return c.Mutex(w.name).Lock(ctx)
	}
	return c.Mutex(w.name).TryLock(ctx)
}

// once is one attempt, from its call to the release of what it got.
func (l *loop) once(life context.Context, w wish) {
	l.n++
	t := &told{l: l, wish: w, attempt: &attempt{id: l.w.job.Process + "-" + strconv.Itoa(l.number) + "-" + strconv.Itoa(l.n), loop: l}}
	ctx, cancel := l.bound(life, w)
	defer cancel()
	t.asks()
	lease, err := l.take(context.WithValue(ctx, attemptKey{}, t.attempt), w)
	defer l.m.witness.rename(t.attempt, "")
	l.waiting.Store(0)
	if !t.hears(lease, err) {
		return
	}
	l.holding.Store(true)
	l.w.grants.Add(1)
	l.pause = 0
	t.watches(lease)
	l.work(life, t, lease)
	l.holding.Store(false) // from the release on it is not held, whenever the store answers
	t.releases(lease)
}

// bound is for how long an attempt may wait: of those that are not patient some have a deadline, others
// are called off.
func (l *loop) bound(life context.Context, w wish) (context.Context, context.CancelFunc) {
	if w.patient || !w.wait {
		return context.WithTimeout(life, patience)
	}
	short := time.Duration(l.rng.Int64N(int64(20 * time.Millisecond)))
	if l.rng.IntN(2) == 0 {
		return context.WithTimeout(life, short)
	}
	ctx, cancel := context.WithTimeout(life, patience)
	timer := time.AfterFunc(short, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// work is what is done under a lock: of one that excludes, a read and a write of the fenced resource.
func (l *loop) work(life context.Context, t *told, lease *holdfast.Lease) {
	var value int64
	begun := false
	q := request{client: t.l.m.name, id: t.id, name: t.wish.name, token: lease.Token()}
	if t.wish.mode == driver.Exclusive {
		var err error
		if value, begun, err = l.fence.ask(&q); err != nil {
			l.w.failed(err)
			begun = false
		}
	}
	l.think(life, t, lease)
	if begun { // also if the lease is over: the resource must refuse it then
		q.write, q.value = true, value+1
		t.tell(history.Event{Kind: history.Writing, Token: q.token, Value: q.value})
		if _, _, err := l.fence.ask(&q); err != nil {
			l.w.failed(err)
		}
	}
	if t.wish.reader {
		t.downgrades(lease)
		l.think(life, t, lease)
	}
}

// slow reports whether the loop holds its locks so long that they have to be renewed. Such loops have
// names of their own: all the others would soon stand in line behind them.
func (l *loop) slow() bool { return l.number%8 == 0 && l.w.job.Loops > 1 }

// think passes some time: up to 3 ms, or in a slow loop about a TTL. Meanwhile the client is asked whether
// the lease stands.
func (l *loop) think(life context.Context, t *told, lease *holdfast.Lease) {
	ttl := l.w.job.TTL
	left, step := time.Duration(0), ttl/8
	if l.slow() {
		left = ttl/2 + time.Duration(l.rng.Int64N(int64(ttl)))
	} else if l.rng.IntN(2) == 0 {
		left = time.Duration(l.rng.Int64N(int64(3 * time.Millisecond)))
	}
	for ; left > 0 && rest(life, min(left, step)); left -= step {
		t.samples(lease)
	}
	t.samples(lease)
}

// rest sleeps for d, or returns false when ctx ends.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// slower makes the loop pause after a call that failed, the longer the more have failed in a row.
func (l *loop) slower() { l.pause = min(max(2*l.pause, 10*time.Millisecond), 500*time.Millisecond) }

// unsupported notes that the store has not this kind of lock. All have mutexes.
func (l *loop) unsupported(k kind, err error) bool {
	if k == mutexes || !errors.Is(err, holdfast.ErrInvalid) {
		return false
	}
	l.w.without[k].Store(true)
	return true
}
