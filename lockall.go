package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Part is one lock of LockAll: a *Mutex, an *RWMutex (for writing), the result of its Reader, a
// *Semaphore (one permit), or the result of its Permits.
type Part interface{ part() *lock }

// MultiLease is several locks that are held together. Its methods are those of Lease, for all of
// them. It ends when any part does. It is safe for concurrent use.
type MultiLease struct {
	leases []*Lease
	all    context.Context // carries all of them, and ends with the first
}

// LockAll waits until it holds all parts. They may belong to several clients, and so to several
// stores. It cannot deadlock with other calls of LockAll, whatever their order. It takes parts in
// the order of their names. While it waits in the queue for a part, it keeps the parts before it
// for a moment only: at most a second, and a tenth of the TTL. Then it releases them, and takes
// them again later. So nobody waits long for a lock that is not being used, and a call for many
// contended locks may take several rounds.
//
// Parts of one name at one store are one part: for writing if any is, and with the sum of the
// permits. Two clients count as one store if they were made with the same Backend. The options of
// each part apply to it. A part that is named several times combines their options: the shortest
// MaxHold, the longest MinHold, Reentrant and RetryFailed if any has them, all notes, and the first
// value of each label. The shortest WaitAtMost bounds the whole call, as ctx does. A call that fails
// holds nothing. Errors: those of Mutex.Lock, for the part that the *Error names; ErrInvalid without
// parts; ErrKind if one name is wanted as two kinds.
func LockAll(ctx context.Context, parts ...Part) (*MultiLease, error) {
	return lockAll(ctx, true, parts)
}

// TryLockAll takes all parts if all are free now. Errors: ErrHeld, with the holder of the
// first part that is not free, and those of LockAll.
func TryLockAll(ctx context.Context, parts ...Part) (*MultiLease, error) {
	return lockAll(ctx, false, parts)
}

// DoAll runs f while it holds all parts, as Mutex.Do does for one.
func DoAll(ctx context.Context, f func(context.Context) error, parts ...Part) error {
	m, err := LockAll(ctx, parts...)
	if err != nil {
		return err
	}
	return doAndRelease(m.Context(ctx), f, func(failed bool) error {
		return m.releaseEach(func(l *Lease) error { return l.releaseAfter(failed) })
	})
}

func lockAll(ctx context.Context, wait bool, parts []Part) (_ *MultiLease, err error) {
	locks, err := mergeParts(parts)
	if err != nil {
		return nil, err
	}
	end := time.Time{}
	for _, k := range locks {
		if t := time.Now().Add(k.opt.atMost); k.opt.atMost > 0 && (end.IsZero() || t.Before(end)) {
			end = t
		}
	}
	held := make([]*Lease, len(locks))
	releaseAll := func() {
		for i, l := range held {
			if l != nil {
				l.discard()
			}
			held[i] = nil
		}
	}
	some := func(of []*Lease) bool { return slices.ContainsFunc(of, func(l *Lease) bool { return l != nil }) }
	hurried, done := false, false
	defer func() {
		if !done { // an Observer has panicked, or ended the goroutine
			releaseAll()
		}
	}()
	for {
		next := -1
		for i, l := range held {
			if l != nil && l.Err() != nil { // lost while the call waited for another part
				l.discard()
				held[i] = nil
			}
			if held[i] == nil && next < 0 {
				next = i
			}
		}
		if next < 0 {
			break
		}
		k := locks[next]
		if !end.IsZero() {
			k.opt.atMost = max(time.Until(end), time.Nanosecond)
		}
		var l *Lease
		switch {
		case !wait:
			l, err = k.take(ctx, "try lock", false)
		case !some(held):
			l, err = k.take(ctx, "lock", true)
		default:
			outOfOrder := some(held[next+1:])
			l, err = k.takeWhileHolding(ctx, outOfOrder && !hurried, releaseAll)
			if outOfOrder && !some(held) { // it gave back
				hurried = !hurried
			}
		}
		if err != nil {
			return nil, err
		}
		held[next] = l
	}
	m := &MultiLease{held, context.Background()}
	m.all = m.Context(m.all)
	done = true
	return m, nil
}

// takeWhileHolding takes k while other parts are held. If that takes longer than the patience, it calls
// giveBackAll, which releases them, and goes on waiting: k keeps its place in the queue.
//
// Calls that take parts in the order of their names never wait for each other in a circle. A call that has
// given back its parts keeps its place in one queue. It may get that part before earlier ones, and is then out
// of order. Such a call is to hurry: if k is not free, it gives back after a sixteenth of the patience. With the
// whole patience, one part that was held for long would put all later calls out of order, and each would cost
// the others a patience. But every other time such a call has the whole patience: otherwise a call for parts
// with long queues would never get all of them. And it always has the whole patience for the first exchange,
// which gets k if it is free.
func (k *lock) takeWhileHolding(ctx context.Context, hurry bool, giveBackAll func()) (*Lease, error) {
	patience := min(k.c.TTL()/10, time.Second)
	// Random, so that two calls in each other's way do not retry in step.
	spread := func(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
	end := time.Now().Add(spread(patience))
	gaveBack := make(chan struct{})
	t := time.AfterFunc(time.Until(end), func() { defer close(gaveBack); giveBackAll() })
	defer func() { // also if an Observer panics
		k.opt.waits = nil
		if !t.Stop() {
			<-gaveBack
		}
	}()
	k.opt.waits = func() {
		if hurry && t.Stop() {
			t.Reset(min(spread(patience/16), time.Until(end)))
		}
		hurry = false
	}
	return k.take(ctx, "lock", true)
}

// mergeParts sorts the parts and makes one of those of one name at one store.
func mergeParts(parts []Part) ([]*lock, error) {
	op := "lock all"
	if len(parts) == 1 {
		op = "lock"
	}
	var locks []*lock
	for i, p := range parts {
		if p == nil {
			return nil, &Error{Op: op, Err: fmt.Errorf("%w part %d: it is nil", ErrInvalid, i)}
		}
		k := p.part()
		if err := k.usable(op); err != nil {
			return nil, err
		}
		part := *k
		locks = append(locks, &part)
	}
	if len(locks) == 0 {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: no parts; at least one is needed", ErrInvalid)}
	}
	slices.SortStableFunc(locks, func(a, b *lock) int {
		return cmp.Or(strings.Compare(a.req.Name, b.req.Name), strings.Compare(a.c.backend.Name(), b.c.backend.Name()))
	})
	out := locks[:1]
	for _, k := range locks[1:] {
		i := slices.IndexFunc(out, func(o *lock) bool { return o.req.Name == k.req.Name && o.c.sameStore(k.c) })
		if i < 0 {
			out = append(out, k)
			continue
		}
		o := out[i]
		if (o.req.Mode == driver.Permits) != (k.req.Mode == driver.Permits) || o.req.Limit != k.req.Limit {
			return nil, &Error{Op: op, Name: k.req.Name, Err: fmt.Errorf("%w: parts want it as different kinds", ErrKind)}
		}
		switch {
		case o.req.Mode == driver.Permits:
			o.req.N += k.req.N
		case k.req.Mode == driver.Exclusive:
			o.req.Mode = driver.Exclusive
		}
		o.opt.merge(&k.opt)
		o.req.MinHold, o.req.Info = o.opt.minHold, o.c.describe(&o.opt)
		if err := o.req.Check(); err != nil {
			return nil, &Error{Op: op, Name: k.req.Name, Err: err}
		}
	}
	return out, nil
}

// Leases returns the parts in the order of their names.
func (m *MultiLease) Leases() []*Lease {
	if m.usable("use") != nil {
		return nil
	}
	return slices.Clone(m.leases)
}

// usable returns an error for a MultiLease that LockAll has not made.
func (m *MultiLease) usable(op string) error {
	if m == nil || len(m.leases) == 0 {
		return &Error{Op: op, Err: fmt.Errorf("%w lease: LockAll has not made it", ErrInvalid)}
	}
	return nil
}

// Err returns nil while all parts may be relied on, and afterwards why the first one ended; see
// Lease.Err.
func (m *MultiLease) Err() error {
	if err := m.usable("use"); err != nil {
		return err
	}
	for _, l := range m.leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Left returns for how long all parts can be relied on from now; see Lease.Left.
func (m *MultiLease) Left() time.Duration {
	if m.usable("use") != nil {
		return 0
	}
	left := m.leases[0].Left()
	for _, l := range m.leases[1:] {
		left = min(left, l.Left())
	}
	return left
}

// Valid reports whether at least d is Left; see Lease.Valid.
func (m *MultiLease) Valid(d time.Duration) bool {
	left := m.Left()
	return left > 0 && left >= d
}

// Done returns a channel that is closed when any part ends.
func (m *MultiLease) Done() <-chan struct{} {
	if m.usable("use") != nil {
		return closed
	}
	return m.all.Done()
}

// Context returns a child of parent that ends with the first part that ends. It carries all of
// them; see Lease.Context and TokenOf.
func (m *MultiLease) Context(parent context.Context) context.Context {
	if err := m.usable("use"); err != nil {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(err)
		return ctx
	}
	for _, l := range m.leases {
		parent = l.Context(parent)
	}
	return parent
}

// Release ends all parts; see Lease.Release. It returns the errors of all, joined.
func (m *MultiLease) Release() error { return m.releaseEach((*Lease).Release) }

// ReleaseNow ends all parts and keeps no name; see Lease.ReleaseNow.
func (m *MultiLease) ReleaseNow() error { return m.releaseEach((*Lease).ReleaseNow) }

func (m *MultiLease) releaseEach(release func(*Lease) error) (err error) {
	if err := m.usable("release"); err != nil {
		return err
	}
	var errs []error
	defer func() { err = errors.Join(errs...) }()
	for _, l := range m.leases { // the last first, and all of them, also if an Observer panics
		defer func() { errs = append(errs, release(l)) }()
	}
	return nil
}
