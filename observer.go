package holdfast

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Observer is told what happens to a client's locks, for metrics and progress displays.
// Any field may be nil. The functions are called from the goroutines that do the work:
// they must return soon and must not call the client.
type Observer struct {
	// Waiting: a Lock has joined the line, or has news of its place there.
	Waiting func(Waiting)

	// Acquired: a Lock was granted after waiting for waited.
	Acquired func(name string, token uint64, waited time.Duration)

	// Renewed: an exchange has renewed n leases and places in line, or failed to.
	Renewed func(n int, took time.Duration, err error)

	// Lost: a lease has ended without being released. Its context is already cancelled.
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

func (o *Observer) waiting(r *driver.Request, ahead int, h *driver.Holder) {
	if o != nil && o.Waiting != nil {
		o.Waiting(Waiting{r.Name, r.ID, ahead, holder(h)})
	}
}

func (o *Observer) acquired(name string, token uint64, waited time.Duration) {
	if o != nil && o.Acquired != nil {
		o.Acquired(name, token, waited)
	}
}

func (o *Observer) renewed(n int, took time.Duration, err error) {
	if o != nil && o.Renewed != nil {
		o.Renewed(n, took, err)
	}
}

func (o *Observer) lost(name string, token uint64, reason Reason) {
	if o != nil && o.Lost != nil {
		o.Lost(name, token, reason)
	}
}

func (o *Observer) released(name string, token uint64, held time.Duration, err error) {
	if o != nil && o.Released != nil {
		o.Released(name, token, held, err)
	}
}
