package holdfast

import (
	"context"
	"sync"
)

// Locker returns m as a sync.Locker, for code that takes one. Its Lock waits until it holds m; ctx
// bounds that.
//
// A sync.Locker cannot report that the lock could not be had, that it was lost, or which token
// guards the writes. So the Locker calls report with each such error. Lock calls it when it gives
// up and then panics with the error, because returning would mean that m is held. Unlock calls it
// when the lock had been lost, or the store did not confirm the release. Use Lock or Do where the
// code can be changed. The Locker holds one lease at a time and is safe for concurrent use.
func (m *Mutex) Locker(ctx context.Context, report func(error)) sync.Locker {
	if report == nil {
		report = func(error) {}
	}
	return &locker{m: m, ctx: ctx, report: report, locked: make(chan struct{}, 1)}
}

type locker struct {
	m      *Mutex
	ctx    context.Context
	report func(error)
	locked chan struct{} // full while locked
	lease  *Lease        // set by the goroutine that filled locked
}

func (l *locker) Lock() {
	err := error(nil)
	select {
	case l.locked <- struct{}{}:
		if err = l.lockOnce(); err == nil {
			return
		}
	case <-l.ctx.Done():
		if err = l.m.part().usable("lock"); err == nil {
			err = &Error{Op: "lock", Name: l.m.req.Name, Err: cause(l.ctx)}
		}
	}
	l.report(err)
	panic(err)
}

// lockOnce takes the lease for the goroutine that filled locked. It empties locked if it fails,
// also if an Observer panics.
func (l *locker) lockOnce() (err error) {
	var lease *Lease
	defer func() {
		if lease == nil {
			<-l.locked
		}
	}()
	lease, err = l.m.Lock(l.ctx)
	l.lease = lease
	return err
}

func (l *locker) Unlock() {
	lease := l.lease
	if lease == nil {
		panic("holdfast: Unlock of a Locker that is not locked")
	}
	l.lease = nil
	defer func() { <-l.locked }() // also if report panics
	if err := lease.Release(); err != nil {
		l.report(err)
	}
}
