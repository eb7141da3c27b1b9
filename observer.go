package holdfast

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Observer receives the events of a client's locks, for metrics and progress displays. Any field
// may be nil.
//
// The goroutine that called Lock or Release calls Waiting, Acquired and Released, and goes on when
// they return. A goroutine of the client calls Renewed and Lost, one after the other and after the
// event. It also calls Released for leases that no caller has: those that Close releases, and those
// that LockAll releases while it waits. These calls delay nothing. If they are too slow, calls are
// dropped, and the next line of the log has their number.
type Observer struct {
	// Waiting: a Lock has joined the queue, or its place there has changed.
	Waiting func(Waiting)

	// Acquired: a Lock was granted after waiting for waited.
	Acquired func(name string, token uint64, waited time.Duration)

	// Renewed: an exchange has renewed n leases and places in the queue, or failed to.
	Renewed func(n int, took time.Duration, err error)

	// Lost: a lease has ended without Release. Its contexts have been cancelled.
	Lost func(name string, token uint64, reason Reason)

	// Revoked: an operator has asked the holder of a lease to release it. The goroutine that calls
	// Renewed calls it.
	Revoked func(name string, token uint64, n Notice)

	// Released: a lease has been released after held. err is what Release returned.
	Released func(name string, token uint64, held time.Duration, err error)
}

// Waiting describes a place in the queue.
type Waiting struct {
	Name   string
	ID     string  // of the request, as Record.Waiters shows it
	Ahead  int     // how many requests are before it in the queue
	Holder *Holder // one of those in the way; nil if the store did not name any
}

// reportWaiting calls the Observer about l's place in the queue. Close does not wait for the
// Observer, so the caller is not counted in c.work meanwhile.
func (l *Lease) reportWaiting(ahead int, h *driver.Holder) {
	o := l.c.observer
	if o == nil || o.Waiting == nil {
		return
	}
	l.c.work.done()
	defer l.c.work.add()
	o.Waiting(Waiting{l.req.Name, l.req.ID, ahead, holder(h)})
}

// reportAcquired calls the Observer about a new lease. If that call panics or ends the goroutine,
// nobody gets the lease. reportAcquired then discards it, because the client would otherwise renew
// it until Close. The caller is counted in c.work.
func (l *Lease) reportAcquired(waited time.Duration) {
	o := l.c.observer
	if o == nil || o.Acquired == nil {
		return
	}
	returned := false
	l.c.work.done() // Close does not wait for the Observer
	defer func() {
		l.c.work.add() // first, so that Close waits for what follows
		if !returned {
			l.discard()
		}
	}()
	o.Acquired(l.req.Name, l.token, waited)
	returned = true
}

func (o *Observer) reportReleased(l *Lease, err error) {
	if o != nil && o.Released != nil {
		o.Released(l.req.Name, l.token, time.Since(l.since), err)
	}
}
