package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// waitLimit bounds every wait. A wait that takes so long has failed.
const waitLimit = 60 * time.Second

// loop is a goroutine that takes one lock after the other.
type loop struct {
	w      *worker
	m      *workerClient
	number int
	rng    *rand.Rand
	n      int // attempts so far
	fence  fence
	pause  time.Duration // after a call that failed

	waiting atomic.Int64 // when its call joined the queue; 0: not in a queue
	holding atomic.Bool
}

// lockSpec is a lock to request, and how.
type lockSpec struct {
	kind      kind
	name      string
	mode      driver.Mode
	n         int
	wait      bool
	patient   bool // it waits up to waitLimit
	downgrade bool // the exclusive lock is downgraded after a while
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
		l.once(ctx, l.pick())
		if pause := max(l.pause, l.w.job.Pause); pause > 0 {
			backoff.Sleep(ctx, pause/2+time.Duration(l.rng.Int64N(int64(pause))))
		}
	}
}

// pick draws the next lock.
func (l *loop) pick() lockSpec {
	number := l.rng.IntN(l.w.job.Names)
	w := lockSpec{mode: driver.Exclusive, n: 1, wait: true, patient: true}
	word := "mutex/"
	switch d := l.rng.IntN(12); {
	case l.w.job.Mix == MixMutex || d < 6:
	case d < 10 && !l.w.without[readWrites].Load():
		w.kind, word = readWrites, "rw/"
		if l.rng.IntN(2) == 0 {
			w.mode = driver.Shared
		}
		w.downgrade = w.mode == driver.Exclusive && l.rng.IntN(3) == 0
	case d >= 10 && !l.w.without[semaphores].Load():
		w.kind, w.mode, word = semaphores, driver.Permits, "semaphore/"
		w.n = 1 + l.rng.IntN(2)
	}
	w.name = l.w.job.Prefix + word + strconv.Itoa(number)
	if l.holdsLong() {
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

// take requests the lock.
func (l *loop) take(ctx context.Context, w lockSpec) (*holdfast.Lease, error) {
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

// once is one attempt, from its call to the release of its grant.
func (l *loop) once(runCtx context.Context, w lockSpec) {
	l.n++
	t := &callRecorder{l: l, lockSpec: w, attempt: &attempt{id: l.w.job.Process + "-" + strconv.Itoa(l.number) + "-" +
		strconv.Itoa(l.n), loop: l}}
	ctx, cancel := l.waitContext(runCtx, w)
	defer cancel()
	t.called()
	lease, err := l.take(context.WithValue(ctx, attemptKey{}, t.attempt), w)
	defer l.m.proofRecorder.rename(t.attempt, "", false)
	l.waiting.Store(0)
	if !t.returned(lease, err) {
		return
	}
	l.holding.Store(true)
	l.w.grants.Add(1)
	l.pause = 0
	t.watch(lease)
	l.work(runCtx, t, lease)
	// Once the release starts, the lease is not held, whenever the store answers.
	l.holding.Store(false)
	t.release(lease)
}

// waitContext returns the context of a wait. Of the impatient attempts some have a deadline, others
// are cancelled.
func (l *loop) waitContext(runCtx context.Context, w lockSpec) (context.Context, context.CancelFunc) {
	if w.patient || !w.wait {
		return context.WithTimeout(runCtx, waitLimit)
	}
	short := time.Duration(l.rng.Int64N(int64(20 * time.Millisecond)))
	if l.rng.IntN(2) == 0 {
		return context.WithTimeout(runCtx, short)
	}
	ctx, cancel := context.WithTimeout(runCtx, waitLimit)
	timer := time.AfterFunc(short, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// work is the work under a lock: under an exclusive one, a read and a write of the fenced resource.
func (l *loop) work(runCtx context.Context, t *callRecorder, lease *holdfast.Lease) {
	var value int64
	begun := false
	q := request{client: t.l.m.name, id: t.id, name: t.lockSpec.name, token: lease.Token()}
	if t.lockSpec.mode == driver.Exclusive {
		var err error
		if value, begun, err = l.fence.ask(&q); err != nil {
			l.w.failed(err)
			begun = false
		}
	}
	l.think(runCtx, t, lease)
	if begun { // even if the lease is over: the resource must refuse it then
		q.write, q.value = true, value+1
		t.record(history.Event{Kind: history.Writing, Token: q.token, Value: q.value})
		if _, _, err := l.fence.ask(&q); err != nil {
			l.w.failed(err)
		}
	}
	if t.lockSpec.downgrade {
		t.downgrade(lease)
		l.think(runCtx, t, lease)
	}
}

// holdsLong reports whether the loop holds its locks so long that they must be renewed. Such loops
// have names of their own, because all other loops would soon queue behind them.
func (l *loop) holdsLong() bool { return l.number%8 == 0 && l.w.job.Loops > 1 }

// think passes some time: up to 3 ms, or about a TTL in a loop that holds long. Meanwhile it
// records whether the client trusts the lease.
func (l *loop) think(runCtx context.Context, t *callRecorder, lease *holdfast.Lease) {
	ttl := l.w.job.TTL
	left, step := time.Duration(0), ttl/8
	if l.holdsLong() {
		left = ttl/2 + time.Duration(l.rng.Int64N(int64(ttl)))
	} else if l.rng.IntN(2) == 0 {
		left = time.Duration(l.rng.Int64N(int64(3 * time.Millisecond)))
	}
	for ; left > 0 && backoff.Sleep(runCtx, min(left, step)); left -= step {
		t.sample(lease)
	}
	t.sample(lease)
}

// backOff lengthens the loop's pause with each failed call in a row.
func (l *loop) backOff() { l.pause = min(max(2*l.pause, 10*time.Millisecond), 500*time.Millisecond) }

// unsupported notes that the store lacks this kind of lock. All stores have mutexes.
func (l *loop) unsupported(k kind, err error) bool {
	if k == mutexes || !errors.Is(err, holdfast.ErrInvalid) {
		return false
	}
	l.w.without[k].Store(true)
	return true
}
