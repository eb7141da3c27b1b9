// Package listening keeps subscriptions: it checks whether they are at the server that publishes to
// waiters, and ends their goroutines with their Conn.
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
	every   = 2 * time.Second       // between checks of a subscription while its client sends requests
	atMost  = 50 * time.Millisecond // at least, between two checks
	patient = 2 * time.Second       // the wait for a silent server
)

// Doubt wakes all checks of one client's subscriptions. The zero value is ready.
type Doubt struct {
	uses atomic.Int64
	mu   sync.Mutex
	ch   chan struct{}
}

// Used counts an exchange of the client. A client without requests has no waiters, so its
// subscriptions need no checks.
func (d *Doubt) Used() { d.uses.Add(1) }

// Raise reports that the client may lead to another server than before.
func (d *Doubt) Raise() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch != nil {
		close(d.ch)
		d.ch = nil
	}
}

// Raised returns a channel that the next Raise closes.
func (d *Doubt) Raised() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

// Watch describes a subscription for Look.
type Watch struct {
	Channel string
	Sharded bool
	Doubt   *Doubt

	// Count runs the script redislock.Listeners for a channel.
	Count func(ctx context.Context, channel, how string) (int64, error)

	Confirmed <-chan struct{} // yields when the server has confirmed the subscription
	Waited    func() bool     // whether anybody waits for messages; nil: always. If not, only doubt is a reason to look
	Settled   func()          // called when the subscription is right, or when that cannot be found out

	// Lost is called when it is at the wrong server. It returns false if the answer says nothing about
	// the subscription as it is now; then Look asks again.
	Lost func() bool
}

// Look asks the server that takes the client's writes whether it has the subscription: when it is
// confirmed, when there is doubt, and from time to time while the client is used. A former primary
// goes on serving subscriptions, as replicas do. But the new primary does not count them, and passes
// their waiters over. Look returns when ctx ends.
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
			if n == used || w.Waited != nil && !w.Waited() {
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
			if confirmed = !w.Lost(); confirmed {
				again = time.After(every)
			}
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

// unclear reports whether err may be gone at the next try. Only a primary answers NOREPLICAS, and
// does so until a replica is back.
func unclear(err error) bool {
	return !strings.Contains(err.Error(), "NOREPLICAS") &&
		(errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain))
}

// ask reports whether the channel has subscribers at the server.
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
