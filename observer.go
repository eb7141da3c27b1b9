package holdfast

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Observer is told what happens to a client's locks, for metrics and progress displays.
// Any field may be nil.
//
// Waiting, Acquired and Released are called by the goroutine that called Lock or Release,
// which goes on when they return. Renewed and Lost, and Released for what Close releases
// and what a call gives up that has not returned it (LockAll, while it waits), are called by
// a goroutine of the client's, one after the other and after the fact. They
// hold up nothing; what they are too slow for is dropped, and counted in the next line of
// the log.
type Observer struct {
	// Waiting: a Lock has joined the line, or has news of its place there.
	Waiting func(Waiting)

	// Acquired: a Lock was granted after waiting for waited.
	Acquired func(name string, token uint64, waited time.Duration)

	// Renewed: an exchange has renewed n leases and places in line, or failed to.
	Renewed func(n int, took time.Duration, err error)

	// Lost: a lease has ended without being released. Its contexts are already cancelled.
	Lost func(name string, token uint64, reason Reason)

	// Released: a lease has been released after held. err is what Release returned.
	Released func(name string, token uint64, held time.Duration, err error)
}

// Waiting is the news of a place in line.
type Waiting struct {
	Name   string
	ID     string  // of the request, as Record.Waiters shows it
	Ahead  int     // how many stand before it
	Holder *Holder // one of those in the way; nil if the store did not tell
}

// waiting tells the Observer of l's place in line. Close does not wait for the Observer, so the
// caller, who is counted in at the gate, is not meanwhile.
func (l *Lease) waiting(ahead int, h *driver.Holder) {
	o := l.c.observer
	if o == nil || o.Waiting == nil {
		return
	}
	l.c.work.leave()
	defer l.c.work.add()
	o.Waiting(Waiting{l.req.Name, l.req.ID, ahead, holder(h)})
}

// announce tells the Observer of a new lease. If that does not return, because it panics or
// ends the goroutine, nobody gets the lease: it is given up, or it would be renewed for as
// long as the client lives. The caller is counted in at the gate.
func (l *Lease) announce(waited time.Duration) {
	o := l.c.observer
	if o == nil || o.Acquired == nil {
		return
	}
	returned := false
	l.c.work.leave() // Close does not wait for the Observer
	defer func() {
		l.c.work.add() // first: Close waits for what follows
		if !returned {
			l.giveUp()
		}
	}()
	o.Acquired(l.req.Name, l.token, waited)
	returned = true
}

func (o *Observer) released(l *Lease, err error) {
	if o != nil && o.Released != nil {
		o.Released(l.req.Name, l.token, time.Since(l.since), err)
	}
}
