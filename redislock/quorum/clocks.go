package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// clocks finds out when the clock of a server is set. What a server decides then, it decides by a wrong time: it
// ends leases too early, or keeps them for too long. So it must not vote until all that was granted before has
// run out, as if it had lost its data.
//
// Every answer, and every push, says what the server's clock was. A process that has
// seen the clock before knows what it must be now, by its own monotonic clock, but for the time that the exchange
// took. One that is new compares the clocks with each other: the servers have on record how their clocks
// compared when they were last seen, as the skew of each from a time that they have in common,
// that of an era. Those that still agree, if they are a majority, are right. The other ones, or those
// whose clock leaves its place under the eyes of a process, stay out for a quarantine, which that process puts on record there.
//
// This notices no step that is smaller than the exchanges take, than a fortieth of the shortest TTL, or than
// what clocks drift by since the last look; the margin of package holdfast is for these. If more than a minority of the clocks are set by
// the same amount at the same time, it is the others that seem to be wrong.
type clocks struct {
	b     *Backend
	start time.Time

	mu      sync.Mutex
	views   []view
	slack   time.Duration // what a clock may be off without having been set
	looked  time.Duration // when they were last compared
	unclear time.Duration // since when it has not been clear which of them are right; 0: it is
	running bool          // look is under way

	deciding sync.Mutex // held by whoever compares them
	life     context.Context
	end      context.CancelFunc
	bg       sync.WaitGroup
}

// view is what is known of one server's clock.
type view struct {
	trust  trust
	lo, hi time.Duration // by how much it is ahead of the time since start
	at     time.Duration // when that was seen
	birth  redislock.Birth
}

type trust uint8

const (
	unseen  trust = iota // it was not compared with the others yet
	sound                // it is where it should be
	doubted              // it was not, or its server began a new life
)

const (
	driftRate  = 2000  // clocks drift by less than this part of the time, while somebody looks
	longDrift  = 10000 // and over days by less than this part: what nobody corrects is the quartz's
	leastSlack = 2 * time.Millisecond
	lookPause  = 50 * time.Millisecond // before the clocks are compared again
	lookTimes  = 40
	lookMost   = 500 * time.Millisecond // how long a server is waited for
)

func newClocks(b *Backend) *clocks {
	c := &clocks{b: b, start: time.Now(), views: make([]view, len(b.servers)), slack: b.quarantine / 40}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// close ends what goes on in the background.
func (c *clocks) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.bg.Wait()
}

// uses notes that a session has leases of that length.
func (c *clocks) uses(ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slack = max(min(c.slack, ttl/40), leastSlack)
}

// moved is the error of a server whose clock is not where it should be. What was asked may have been done.
type moved struct{ server string }

func (e *moved) Error() string {
	return fmt.Sprintf("%v: %s: its clock was set, or not yet compared with the others'", driver.ErrUncertain, e.server)
}

func (e *moved) Unwrap() error { return driver.ErrUncertain }

// A watch looks after the clock of one server. It implements redislock.Watch.
type watch struct {
	c *clocks
	i int
}

// Answered implements redislock.Watch.
func (w watch) Answered(sent time.Time, clock time.Duration) error {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.views[w.i]
	if v.trust == unseen { // it is not asked for votes
		return nil
	}
	if v.trust == sound && clock >= v.birth.Born && v.fits(sent.Sub(c.start), time.Since(c.start), clock, c.slack) {
		return nil
	}
	if v.trust == sound { // else it is being looked at anew
		c.doubt(w.i)
	}
	return &moved{c.b.servers[w.i].Name}
}

// Pushed implements redislock.Watch. What was pushed may come late, so the clock may have gone on since.
func (w watch) Pushed(clock time.Duration) bool {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.views[w.i]
	now := time.Since(c.start)
	if v.trust == sound && clock >= v.birth.Born && clock-now <= v.hi+c.slack+v.drift(now) {
		return true
	}
	if v.trust == sound {
		c.doubt(w.i)
	}
	return false
}

// Looked implements redislock.Watch.
func (w watch) Looked(sent time.Time, b redislock.Birth) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.views[w.i]
	from, now := sent.Sub(c.start), time.Since(c.start)
	if v.trust == sound && b.Born == v.birth.Born && v.fits(from, now, b.Clock, c.slack) {
		v.birth = b
		return
	}
	if v.trust == sound {
		c.doubt(w.i)
	}
	v.lo, v.hi, v.at, v.birth = b.Clock-now, b.Clock-from, now, b
}

// drift is by how much the clock may have drifted since it was seen. After a long time it may be more; then the clocks are
// compared, which does no harm.
func (v *view) drift(now time.Duration) time.Duration { return min(now-v.at, stale) / driftRate }

// near reports whether what was seen since, which is between lo and hi, can be the same but for some time.
func (v *view) near(lo, hi, some time.Duration) bool { return lo <= v.hi+some && hi >= v.lo-some }

// fits reports whether the clock is where it was expected at some time between from and to, and remembers it.
func (v *view) fits(from, to, clock, slack time.Duration) bool {
	drift := v.drift(to)
	lo, hi := clock-to, clock-from
	if !v.near(lo, hi, drift+slack) {
		return false
	}
	if v.near(lo, hi, drift) {
		lo, hi = max(lo, v.lo-drift), min(hi, v.hi+drift)
	}
	v.lo, v.hi, v.at = lo, hi, to
	return true
}

// doubt notes that a server's clock is not where it should be. Called with c.mu held.
func (c *clocks) doubt(i int) {
	c.views[i].trust, c.views[i].at = doubted, 0
	c.soon()
}

// votes reports whether what server i decides counts.
func (c *clocks) votes(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.views[i].trust == sound
}

// check returns an error if what server i decides does not count. Then the clocks are compared soon; and every now and then,
// so that what is on record does not become old while somebody uses it.
func (c *clocks) check(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fine := c.views[i].trust == sound
	if !fine || time.Since(c.start)-c.looked > stale {
		c.soon()
	}
	if fine {
		return nil
	}
	return fmt.Errorf("%w: %s: its clock is being compared with the others'", driver.ErrUnavailable, c.b.servers[i].Name)
}

// soon compares the clocks in the background. Called with c.mu held.
func (c *clocks) soon() {
	if c.running || c.life.Err() != nil {
		return
	}
	c.running = true
	c.bg.Go(func() {
		for n := range lookTimes {
			c.look()
			if c.settled() || !sleep(c.life, min(lookPause<<min(n, 5), time.Second)) {
				break
			}
		}
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
	})
}

// settled reports whether nothing is to be found out about any server that is connected.
func (c *clocks) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.b.servers {
		if c.views[i].trust != sound && s.connected() != nil {
			return false
		}
	}
	return true
}

// look asks all servers what their clocks are, and compares them.
func (c *clocks) look() {
	ctx, cancel := context.WithTimeout(c.life, lookMost)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range c.b.servers {
		m := s.connected()
		if m == nil {
			continue
		}
		all.Go(func() {
			if _, err := m.Birth(ctx, false); err != nil {
				c.mu.Lock()
				if v := &c.views[i]; v.trust != sound {
					v.at = 0 // nothing is known
				}
				c.mu.Unlock()
			}
		})
	}
	all.Wait()
	c.decide(c.life)
}

// decide compares the clocks, as far as they have been seen, and puts on record what follows from that. A server that does not
// hear of it is not sound.
func (c *clocks) decide(ctx context.Context) {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	c.mu.Lock()
	views, slack := append([]view(nil), c.views...), c.slack
	now := time.Since(c.start)
	patient := c.unclear == 0 || now-c.unclear < askLimit
	c.mu.Unlock()
	rulings, clear := judge(views, c.b.need(), slack, !patient)
	c.mu.Lock()
	c.looked = now
	switch {
	case clear:
		c.unclear = 0
	case c.unclear == 0:
		c.unclear = max(now, 1)
	}
	c.mu.Unlock()
	var all sync.WaitGroup
	for i, r := range rulings {
		if r.sound {
			all.Go(func() { c.carryOut(ctx, i, views[i], r) })
		}
	}
	all.Wait()
}

// carryOut puts a ruling on record at the server, if need be, and here; unless the clock has left the place where it was judged.
func (c *clocks) carryOut(ctx context.Context, i int, judged view, r ruling) {
	on := judged.birth
	life, era := on.Born, on.Era
	if r.note {
		m := c.b.servers[i].connected()
		if m == nil {
			return
		}
		b, err := m.Note(ctx, on, r.era, r.skew, r.set)
		if err != nil || b.Era != r.era || b.Skew != r.skew || !r.set && b.Born != on.Born {
			return // or another was faster, and it is decided anew
		}
		life, era = b.Born, b.Era
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := &c.views[i]; v.at != 0 && v.birth.Born == life && v.birth.Era == era && (r.set || judged.near(v.lo, v.hi, judged.drift(v.at)+c.slack)) {
		v.trust = sound
	}
}
