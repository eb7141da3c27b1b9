// Package listening finds out whether a subscription is at the server that tells waiters.
package listening

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

const (
	every   = 2 * time.Second       // a subscription of a client that asks its server is looked after
	atMost  = 50 * time.Millisecond // between two looks
	patient = 2 * time.Second       // with a server that is silent
)

// Doubt wakes all who look after subscriptions of one client. The zero value is ready.
type Doubt struct {
	uses atomic.Int64
	mu   sync.Mutex
	ch   chan struct{}
}

// Used counts an exchange of the client. A client that asks nothing waits for nothing, so its subscriptions need no care.
func (d *Doubt) Used() { d.uses.Add(1) }

// Raise says that the client may lead to another server than before.
func (d *Doubt) Raise() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch != nil {
		close(d.ch)
		d.ch = nil
	}
}

// Raised returns what is closed by the next Raise.
func (d *Doubt) Raised() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

// Watch is what Look needs to know of a subscription.
type Watch struct {
	Channel string
	Sharded bool
	Doubt   *Doubt

	// Count runs the script redislock.Listeners for a channel.
	Count func(ctx context.Context, channel, how string) (int64, error)

	Confirmed <-chan struct{} // yields when the server has confirmed the subscription
	Settled   func()          // called when the subscription turned out to be right, or nobody knows
	Lost      func()          // called when it is at the wrong server
}

// Look asks the server that takes the client's writes whether it has the subscription: as soon as it is confirmed, when
// there is doubt, and every now and then while the client is used. A server that was a primary goes on serving
// subscriptions, as replicas do, but nobody is told there of what it is not granted. Look returns when ctx ends.
func (w *Watch) Look(ctx context.Context) {
	confirmed, since, used := false, time.Time{}, int64(0)
	var again <-chan time.Time
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		doubt := w.Doubt.Raised()
		select {
		case <-w.Confirmed:
			confirmed, since = true, time.Now()
		case <-again:
		case <-doubt:
		case <-tick.C:
			n := w.Doubt.uses.Load()
			if n == used {
				continue
			}
			used = n
		case <-ctx.Done():
			return
		}
		if !confirmed {
			continue
		}
		switch there, err := w.ask(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil && unclear(err) && time.Since(since) < patient:
			again = time.After(atMost) // a failover may be under way
		case err == nil && !there:
			confirmed = false
			w.Lost()
		default:
			w.Settled()
		}
		select {
		case <-time.After(atMost):
		case <-ctx.Done():
			return
		}
	}
}

// unclear reports whether err may be none the next time. Only a primary says NOREPLICAS, and it says so until a
// replica is back.
func unclear(err error) bool {
	return !strings.Contains(err.Error(), "NOREPLICAS") && (errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain))
}

// ask reports whether anybody listens at the server.
func (w *Watch) ask(ctx context.Context) (there bool, err error) {
	how := "NUMSUB"
	if w.Sharded {
		how = "SHARDNUMSUB"
	}
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	n, err := w.Count(ctx, w.Channel, how)
	return n > 0, err
}
