package holdfast

import (
	"context"
	"sync"
)

// Locker returns m as a sync.Locker, for code that takes one. Its Lock waits until it
// holds m; ctx bounds that.
//
// A sync.Locker has no way to say what a distributed lock must say: that it could not be
// had, that it was lost while it was held, which token guards the writes. report is
// called with each such error: from Lock when it gives up, and Lock then panics with the
// error, because returning would mean that m is held; from Unlock when the lock had been
// lost, or the store did not hear the release. Use Lock or Do where the code can be
// changed. The Locker holds one lease at a time and is safe for concurrent use.
func (m *Mutex) Locker(ctx context.Context, report func(error)) sync.Locker {
	if report == nil {
		report = func(error) {}
	}
	return &locker{m: m, ctx: ctx, report: report, turn: make(chan struct{}, 1)}
}

type locker struct {
	m      *Mutex
	ctx    context.Context
	report func(error)
	turn   chan struct{} // full while locked
	lease  *Lease        // set by who filled turn
}

func (l *locker) Lock() {
	err := error(nil)
	select {
	case l.turn <- struct{}{}:
		if err = l.fill(); err == nil {
			return
		}
	case <-l.ctx.Done():
		if err = l.m.part().made("lock"); err == nil {
			err = &Error{Op: "lock", Name: l.m.req.Name, Err: cause(l.ctx)}
		}
	}
	l.report(err)
	panic(err)
}

// fill takes the lease of who has the turn. The turn ends with the attempt, also if an Observer panics.
func (l *locker) fill() (err error) {
	var lease *Lease
	defer func() {
		if lease == nil {
			<-l.turn
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
	defer func() { <-l.turn }() // also if report panics
	if err := lease.Release(); err != nil {
		l.report(err)
	}
}
