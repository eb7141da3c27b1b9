package quorum

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A lease may be shorter than the TTL, and its exchanges may ask for different lengths. So each vote
// records until when its server keeps the grant or place at least, and an exchange proves a lease
// only with votes that last as long as it asked. Everything that depends on time, such as asking a
// server for the grant again, depends on the proven lease and not on the TTL.

// A term is an exchange about a request, and the lease that it asked for.
type term struct {
	stamp int64         // the exchange
	sent  time.Duration // when it was sent, by the session's clock
	lease time.Duration
	extra time.Duration // so much longer do the servers keep it
}

// end returns when the lease ends, if it counts from the exchange.
func (t term) end() time.Duration { return t.sent + t.lease }

// term returns the term of an exchange that begins now and asks for a lease, as in driver.Request.
//
// The margin of package holdfast covers a step of a clock that is too small to be noticed. It is a
// part of the lease, and the step a part of the TTL. So servers keep a short lease for that step
// longer.
func (s *session) term(stamp int64, asked time.Duration) term {
	lease := driver.LeaseWithin(asked, s.ttl)
	return term{stamp, s.clock.now(), lease, min(s.ttl/slackPart, s.ttl-lease)}
}

// rest returns t for the exchange of t. For another one, which begins now, it returns a term whose lease
// is to end with that of t. So no server keeps a lease for longer than the caller's exchanges have
// asked. In particular, no place of a grant outlasts it: the place would get the name after another
// request has had it.
func (s *session) rest(t term, stamp int64) term {
	if stamp == t.stamp {
		return t
	}
	now := s.clock.now()
	return term{stamp, now, max(t.end()-now, time.Millisecond), t.extra}
}

// kept returns for how long servers are asked to keep a lease, as in driver.Request.
func (s *session) kept(t term) time.Duration {
	if t.lease+t.extra >= s.ttl {
		return 0
	}
	return t.lease + t.extra
}

// proves reports whether the server has granted the request for as long as t asked, as answered
// since. An exchange that asked for less proves nothing about t.
func (s *vote) proves(t term) bool {
	return s.state == granted && s.answered >= t.stamp && s.until >= t.end()
}

// holds records that a majority has granted the request under token, as t proved.
func (r *request) holds(token uint64, t term, now time.Duration) {
	r.token, r.proof = token, t
	if r.from == 0 {
		r.from = now
	}
	for i := range r.votes {
		s := &r.votes[i]
		s.firm = s.proves(t)
		if s.heard < t.sent { // the grant that ended was an earlier one
			s.ended = false
		}
	}
}

// holds is r.holds. A minimum hold is extended to the other servers soon: it must not depend on a bare majority.
// The caller holds r.mu.
func (s *session) holds(r *request, token uint64, t term) {
	r.holds(token, t, s.clock.now())
	if r.driver.MinHold > 0 {
		s.completeSoon(r)
	}
}

// surpassed returns a token below those of all grants that follow r's. A majority proved r's grant. One of these
// servers takes part in any later majority, and its clock had passed the token at the proof: tokens start from the
// clock. That fails only if the server's clock was set back since. The caller holds r.mu.
func (s *session) surpassed(r *request) uint64 {
	var tokens []uint64
	for i := range r.votes {
		if v := &r.votes[i]; v.firm && v.proves(r.proof) {
			tokens = append(tokens, s.b.clocks.passed(i, s.clock.start.Add(r.proof.sent)))
		}
	}
	if len(tokens) < r.need {
		return r.token
	}
	slices.Sort(tokens)
	return max(r.token, tokens[len(tokens)-r.need])
}

// standing returns how many servers have the grant, as answered since t, how many of them prove t,
// and of how many the state is unknown. Once the proven lease is over, another request may have had a
// majority. So from then on only those count that have had the grant all the time: the others may
// have granted it after that request, to a place that was left in the queue, or to an exchange that
// came late.
func (r *request) standing(t term, now time.Duration) (have, prove, open int) {
	lapsed := r.token != 0 && now >= r.proof.end()
	for i := range r.votes {
		switch s := &r.votes[i]; {
		case lapsed && !s.firm:
		case s.answered < t.stamp:
			if s.state != nothing || s.sent > s.answered {
				open++
			}
		case s.proves(t):
			have, prove = have+1, prove+1
		case s.state == granted:
			have++
		}
	}
	return have, prove, open
}

// renewed records that a majority still has the grant, as t proved.
func (r *request) renewed(t term) {
	if t.end() > r.proof.end() { // a shorter renewal ends no lease
		r.proof = t
	}
	for i := range r.votes {
		s := &r.votes[i]
		s.firm, s.ended = s.firm || s.proves(t), false
	}
}

// counts returns the exchange that the lease of the grant or place counts from, as far as is known.
func (r *request) counts() term {
	if r.token != 0 {
		return r.proof
	}
	return r.since
}

// fresh reports whether less than that part of the proven lease is over.
func (r *request) fresh(now, percent time.Duration) bool {
	return now-r.proof.sent < r.proof.lease*percent/100
}
