package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// clocks finds out when the clock of a server is set. Such a server decides by a wrong time: it
// ends leases too early, or keeps them for too long. So it must not vote until all earlier grants
// have expired, as if it had lost its data.
//
// Every answer and every push contains the server's clock. A process that has seen the clock before
// knows what it must be now: its own monotonic clock shows it, up to the time of the exchange. A
// new process compares the clocks with each other. The servers record how their clocks compared
// when they were last seen: the skew of each from a common time, which is called an era. Clocks
// that still agree are right if they are a majority. The other servers get a quarantine, which the
// process records there. So does a server whose clock moves while a process watches.
//
// This notices no step that is smaller than the time of an exchange, than a fortieth of this process's
// shortest TTL, or than the drift since the last look. The margin of package holdfast covers those,
// and for a lease that is shorter than the TTL the time that session.kept adds.
// If more than a minority of the clocks are set by the same amount at the same time, the others
// seem to be wrong.
type clocks struct {
	b     *Backend
	start time.Time

	mu      sync.Mutex
	views   []view
	slack   time.Duration // how far off a clock may be without having been set
	looked  time.Duration // when the last comparison was tried
	judging time.Duration // when a majority was compared last
	unclear bool          // then it was unclear which of them are right
	waited  time.Duration // for how long it has been; a pause between comparisons counts as half of askLimit at most
	running bool          // look is under way

	deciding sync.Mutex // held during a comparison
	life     context.Context
	end      context.CancelFunc
	bg       sync.WaitGroup
}

// view is what is known of one server's clock.
type view struct {
	trust  trust
	lo, hi time.Duration // how far it is ahead of the time since start
	at     time.Duration // when that was seen
	from   time.Duration // since when lo and hi have been followed without a gap
	birth  redislock.Birth
}

type trust uint8

const (
	unseen  trust = iota // not compared with the others yet
	sound                // it is where it should be
	doubted              // it was not, or its server began a new life
)

const (
	slackPart  = 40    // of the shortest TTL: a smaller step of a clock is not noticed
	driftRate  = 2000  // clocks drift by less than this part of the time, while a process watches
	longDrift  = 10000 // and over days by less than this part: the drift of uncorrected quartz
	leastSlack = 2 * time.Millisecond
	lookPause  = 50 * time.Millisecond // before the clocks are compared again
	lookTimes  = 40
	lookMost   = 500 * time.Millisecond // the wait for one server; longer when they are compared again
)

func newClocks(b *Backend) *clocks {
	c := &clocks{b: b, start: time.Now(), views: make([]view, len(b.servers)), slack: b.quarantine / slackPart}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// close ends the background work.
func (c *clocks) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.bg.Wait()
}

// uses records that a session has leases of that TTL.
func (c *clocks) uses(ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slack = max(min(c.slack, ttl/slackPart), leastSlack)
}

// moved is the error of a server whose clock is not where it should be. The request may have been
// done.
type moved struct{}

func (e *moved) Error() string {
	return fmt.Sprintf("%v: its clock was set, or not yet compared with the others'", driver.ErrUncertain)
}

func (e *moved) Unwrap() error { return driver.ErrUncertain }

// A watch checks the clock of one server. It implements redislock.Watch.
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
	if v.trust == sound { // else a comparison is under way
		c.doubt(w.i)
	}
	return ofServer(c.b.servers[w.i].Name, &moved{})
}

// Pushed implements redislock.Watch. A push may come late, so the clock may have gone on since.
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
	if b.Left == 0 {
		c.b.used.Store(true)
	}
	v := &c.views[w.i]
	from, now := sent.Sub(c.start), time.Since(c.start)
	if v.trust == sound && b.Born == v.birth.Born && v.fits(from, now, b.Clock, c.slack) {
		v.birth = b
		return
	}
	if v.trust == sound {
		c.doubt(w.i)
	}
	v.lo, v.hi, v.at, v.from, v.birth = b.Clock-now, b.Clock-from, now, now, b
}

// drift returns how far the clock may have drifted since it was seen. After a long time it may be
// more; then the clocks are compared, which does no harm.
func (v *view) drift(now time.Duration) time.Duration { return min(now-v.at, stale) / driftRate }

// near reports whether a new reading, between lo and hi, differs from the last one by at most some.
func (v *view) near(lo, hi, some time.Duration) bool { return lo <= v.hi+some && hi >= v.lo-some }

// fits reports whether the clock is where it was expected at some time between from and to, and
// records it.
func (v *view) fits(from, to, clock, slack time.Duration) bool {
	drift := v.drift(to)
	lo, hi := clock-to, clock-from
	if !v.near(lo, hi, drift+slack) {
		return false
	}
	if v.near(lo, hi, drift) {
		lo, hi = max(lo, v.lo-drift), min(hi, v.hi+drift)
	} else {
		v.from = to
	}
	v.lo, v.hi, v.at = lo, hi, to
	return true
}

// doubt records that a server's clock is not where it should be. The caller holds c.mu.
func (c *clocks) doubt(i int) {
	c.views[i].trust, c.views[i].at = doubted, 0
	c.soon()
}

// passed returns a token that the clock of server i had passed at that time, or 0 if none is known.
func (c *clocks) passed(i int, at time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, t := &c.views[i], at.Sub(c.start)
	if v.trust != sound || v.at == 0 || t < v.from {
		return 0
	}
	unnoticed := c.slack + (v.hi - v.lo) // a step of the clock
	return uint64(max(v.lo+t-(v.at-t).Abs()/driftRate-unnoticed, 0).Microseconds())
}

// anyNew reports whether a server that was seen has not been compared with the others yet.
func (c *clocks) anyNew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.views, func(v view) bool { return v.trust == unseen && v.at != 0 })
}

// trusts returns what is known of the clock of server i.
func (c *clocks) trusts(i int) trust {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.views[i].trust
}

// mayVote reports whether the decisions of server i count.
func (c *clocks) mayVote(i int) bool { return c.trusts(i) == sound }

// check returns an error if the decisions of server i do not count. In that case, and also from
// time to time, the clocks are compared soon, so that records do not become old while they are in
// use.
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
	return ofServer(c.b.servers[i].Name,
		fmt.Errorf("%w: its clock is being compared with the others'", driver.ErrUnavailable))
}

// decide compares the clocks, and records the result for the servers that were seen since then. A server
// that does not get its ruling is not sound, unless it was before.
func (c *clocks) decide(ctx context.Context, since time.Duration) {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	views, rulings := c.judged(since)
	var all sync.WaitGroup
	for i, r := range rulings {
		if r.sound {
			all.Go(func() { c.carryOut(ctx, i, views[i], r) })
		}
	}
	all.Wait()
}

// judged returns what is known of the clocks, and what follows for the servers that were seen since then. If this
// process was asleep, its own clock may have stood still. Then a server that it saw before has not been set, though
// it disagrees with those that it sees now. So a server that is silent gets no ruling, and if only a minority
// answers, none does. What was seen before still counts for the others' rulings.
func (c *clocks) judged(since time.Duration) (views []view, rulings []ruling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.start)
	c.looked = now
	views = slices.Clone(c.views)
	silent := func(v view) bool { return v.at == 0 || v.at < since }
	fresh := 0
	for _, v := range views {
		if !silent(v) {
			fresh++
		}
	}
	if fresh < c.b.need() {
		return views, nil
	}
	// Another server may show which of them are right, so that gets some time.
	if c.unclear {
		c.waited += min(now-c.judging, askLimit/2)
	} else {
		c.waited = 0
	}
	c.judging = now
	must := c.waited >= askLimit+lookMost
	rulings, clear := judge(views, c.b.need(), c.slack, must)
	c.unclear = !clear && !must
	for i, v := range views {
		if silent(v) {
			rulings[i] = ruling{}
		}
	}
	return views, rulings
}

// carryOut records a ruling at the server, if necessary, and here; unless the clock has moved since
// the comparison.
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
			return // or another process was faster, and the next look decides
		}
		life, era = b.Born, b.Era
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := &c.views[i]; v.at != 0 && v.birth.Born == life && v.birth.Era == era &&
		(r.set || judged.near(v.lo, v.hi, judged.drift(v.at)+c.slack)) {
		v.trust = sound
	}
}
