package redislock

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// With a Format, a program that uses the other library may end a grant of ours by force. It then
// announces on the name's channel that the name is free. So the session also subscribes to the
// channels of its grants, once they are older than listenAfter. Shorter holds cost nothing, and need
// no subscription: whoever forces a lock open has looked at it before. A message raises doubt, and
// the client asks the store. What can happen:
//
//   - Java forces the lock open, and somebody takes it or not: the message comes after the script, so
//     the answer to the check is Gone.
//   - Java does so before the subscription stands: one check follows each subscription, also after a
//     lost connection.
//   - The message of our own release, or of an earlier holder's, arrives when the next grant of the
//     name is ours. That grant is younger than listenAfter and does not listen yet. The check that
//     begins its listening comes later and finds the grant.
//   - The message of our own release arrives while the grant listens: the client has given the lease up
//     before.
//   - We hand the name on among ourselves: nothing is announced, since the name is never free.
//   - A reader leaves while others read: Redisson announces only the last one. A downgrade of ours is
//     announced: one check.
//   - Somebody forges messages: the client bounds the checks.
//
// Permits do not listen: each release of a permit is announced, and says nothing about the others.
// The queue of an RFairLock announces a release only to its next waiter.
const (
	listenAfter  = time.Second
	mostChannels = 1000 // of a session; further grants hear of their end at their renewal
)

// startListening starts the listening for grants, if the client wants it. Each name must not cost a
// connection.
func (s *session) startListening() {
	if _, shared := s.b.conn.Conn.(ManySubscriber); shared && s.doubt != nil {
		s.announced.opened = make(chan struct{}, 1)
		s.announced.ending.Go(s.listenForGrants)
	}
}

// listenForGrants runs until the session is closed.
func (s *session) listenForGrants() {
	ticker := time.NewTicker(listenAfter)
	defer ticker.Stop()
	for {
		select {
		case <-s.announced.ctx.Done():
			return
		case <-s.announced.opened:
			s.listen(false)
		case <-ticker.C:
			s.listen(true)
			s.announced.prune()
		}
	}
}

// listen lets grants listen that were there at the last tick already.
func (s *session) listen(tick bool) {
	old := map[string]request{}
	s.mu.Lock()
	for id, a := range s.requests {
		switch {
		case a.token == 0 || a.listens == a.token || !s.b.format.announcesEnd(&a):
		case a.held == a.token:
			old[id] = a
		case tick:
			a.held = a.token
			s.requests[id] = a
		}
	}
	s.mu.Unlock()
	for id, a := range old {
		stands := true
		for _, channel := range s.b.format.channelsOf(id, &a) {
			stands = s.announced.stands(channel, a.name) && stands
		}
		if !stands {
			continue
		}
		s.mu.Lock()
		if now, ok := s.requests[id]; ok && now.token == a.token {
			now.listens = a.token
			s.requests[id] = now
		}
		s.mu.Unlock()
		s.doubt(a.name)
	}
}

// announcesEnd reports whether the other library announces the end of such a grant by force.
func (f *Format) announcesEnd(a *request) bool {
	if a.mode == 0 {
		return a.adopted
	}
	return a.mode != driver.Permits && !f.queued(a.mode, a.rw)
}

// channelsOf returns the channels of a grant. It may be a lock of either kind if it was adopted.
func (f *Format) channelsOf(id string, a *request) []string {
	if !a.adopted {
		return []string{f.Channel(a.name, id, a.mode, a.rw)}
	}
	all := []string{f.Channel(a.name, id, driver.Exclusive, true)}
	if !f.queued(driver.Exclusive, false) {
		all = append(all, f.Channel(a.name, id, driver.Exclusive, false))
	}
	return slices.Compact(all)
}

// stands reports whether the session listens to a channel. If not, it subscribes in the background.
func (e *announcements) stands(channel, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.in.b.now()
	l := e.channels[channel]
	switch {
	case e.closed:
		return false
	case l == nil:
		// Not every refusal is followed by the next try a second later.
		if len(e.channels) < mostChannels && now >= e.pausedTill {
			l = &announcement{name: name, ready: make(chan struct{}), used: now}
			e.channels[channel] = l
			e.ending.Go(func() { e.openForGrants(l, channel) })
		}
		return false
	case l.ended != nil:
		return false
	}
	select {
	case <-l.ready:
		l.grants.Store(l.err == nil)
		return l.err == nil
	default:
		return false
	}
}

func (e *announcements) openForGrants(l *announcement, channel string) {
	e.open(l, channel)
	if l.err != nil {
		e.mu.Lock()
		e.pausedTill = e.in.b.now() + idleAfter
		e.mu.Unlock()
		return
	}
	select {
	case e.opened <- struct{}{}:
	default:
	}
}
