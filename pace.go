package holdfast

import (
	"maps"
	"math"
	"time"
)

// mostAhead is by how much a client lets tokens run ahead of a clock of which they are the microseconds.
// If a server fails and others go on without its last grants, their clock has passed that long before.
const mostAhead = 20 * time.Millisecond

// A pace bounds how many tokens a client takes of a name. A store whose tokens are times keeps them
// growing over a loss of data only if no more are used than microseconds pass. The client counts its own.
// Other clients that take the name in turn with it may have taken more. So it compares how far each token
// is from its own clock with the least distance within the last minute or two. An exchange that was slow
// on its way to the store looks like tokens that are ahead, and makes the next block smaller; so does,
// for a minute or two, a clock of the store that was set forward, and one that runs faster than the
// client's by a few parts in ten thousand, for as long as it does.
//
// A client whose clock runs faster than the store's would let tokens run ahead for ever. So it counts a
// little less time than passes. Clients that kept the tokens ahead would take that for the least distance
// after a while, and let them run further ahead. So a client that has taken as many as it may asks for
// single ones until the clock has caught up: that shows the least distance again.
//
// All fields are guarded by Client.mu.
type pace struct {
	ahead   time.Duration // of the last token that was asked for
	at      time.Duration // when it was asked for, on coarseNow
	seen    time.Duration // how far the token of that grant was ahead, as the distances tell
	least   int64         // distance of a token from coarseNow in microseconds, since from
	earlier int64         // the same of the paceWindow before
	from    time.Duration
	last    time.Duration // seen, of the last such grant
	rests   bool          // tokens were as far ahead as they may be, and the clock has not caught up yet
}

const (
	almost     = moreTokens * time.Microsecond // is as good as not ahead
	paceWindow = time.Minute
	maxDrift   = 1000 // by one part in so many two clocks differ in speed at most: NTP changes each by half of that
	maxPaces   = 1024 // names
	noDistance = math.MaxInt64
)

// block returns how many of n tokens the next block may have, 1 at least.
func (p *pace) block(n int, now time.Duration) int {
	passed := now - p.at
	passed -= passed / maxDrift
	p.ahead = max(max(p.ahead, p.seen)-passed, 0)
	p.at, p.seen = now, 0
	left := int((mostAhead - p.ahead) / time.Microsecond)
	switch {
	case p.rests:
		n, p.rests = 1, p.ahead > almost || p.last > max(min(passed, time.Millisecond), almost) // an exchange may be slow
	case n >= left:
		n, p.rests = max(left, 1), true
	}
	p.ahead = min(p.ahead, mostAhead) + time.Duration(n)*time.Microsecond
	return n
}

// granted notes the token of a grant that was asked for at sent.
func (p *pace) granted(token uint64, sent time.Duration) {
	switch age := sent - p.from; {
	case age >= 2*paceWindow:
		p.from, p.earlier, p.least = sent, noDistance, noDistance
	case age >= paceWindow:
		p.from, p.earlier, p.least = sent, p.least, noDistance
	}
	distance := int64(min(token, math.MaxInt64)) - sent.Microseconds()
	p.least = min(p.least, distance)
	p.seen = time.Duration(min(distance-min(p.least, p.earlier), time.Hour.Microseconds())) * time.Microsecond
	p.last = p.seen
}

// paceOf returns the pace of a name. Called with c.mu held.
func (c *Client) paceOf(name string, now time.Duration) *pace {
	p := c.paces[name]
	if p != nil {
		return p
	}
	if len(c.paces) >= maxPaces {
		maps.DeleteFunc(c.paces, func(_ string, p *pace) bool { return now-p.at > 2*paceWindow })
		if len(c.paces) >= maxPaces {
			clear(c.paces) // cohorts keep theirs
		}
	}
	p = &pace{at: now, from: now - 2*paceWindow}
	c.paces[name] = p
	return p
}
