package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// pushed takes what a server has pushed for the request id.
func (s *session) pushed(p *post, id string) {
	r := s.find(id)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	grant, ask := r.pushed(p.index)
	switch {
	case grant:
		s.settle(r)
	case ask && r.token == 0 && !r.over:
		s.wake(r, 0)
	}
}

// wake tells the caller. Called with r.mu held.
func (s *session) wake(r *request, token uint64) {
	drain(r.wake)
	r.wake <- token // there is room: only this sends, under r.mu
}

// settle draws the conclusions from news. Called with r.mu held.
func (s *session) settle(r *request) {
	switch {
	case r.over:
		return
	case r.asking:
		r.signal()
		return
	case r.token != 0 || !r.driver.Wait || r.raising:
		return
	}
	if token := r.agreed(r.since); token != 0 {
		r.token, r.proved = token, r.sinceAt
		s.wake(r, token)
		return
	}
	if r.common() != 0 && r.count(0, granted) == len(r.seats) {
		r.raising = true
		s.background(func() { s.confirm(r) })
		return
	}
	if r.rank() >= 0 && r.timer == nil {
		r.timer = time.AfterFunc(min(s.moment()<<min(r.claims, 20), s.ttl/6), func() { s.claim(r) })
	}
}

// background runs f beside the caller, unless the session is closed.
func (s *session) background(f func()) {
	if s.begin(nil) != nil {
		return
	}
	go func() {
		defer s.bg.Done()
		f()
	}()
}

// confirm brings those who have handed a request over to one token, and renews the grants that
// were proven before the caller's last exchange.
func (s *session) confirm(r *request) {
	r.mu.Lock()
	since := r.since
	r.mu.Unlock()
	_ = s.agree(s.limited(), r, since) // if it failed, the seats show it
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raising = false
	s.settle(r)
}

// agree gives the grants of r one token, and renews those not proven since. It returns when a majority has
// done that, or cannot any more.
func (s *session) agree(ctx context.Context, r *request, since int64) error {
	for range len(s.posts) { // another grant may get in between; not more often than there are servers at a time
		stamp := s.stamp.Add(1)
		r.mu.Lock()
		to := r.common()
		type one struct {
			p     *post
			h     driver.Hold
			renew bool
		}
		var behind []one
		for i, p := range s.posts {
			if seat := &r.seats[i]; seat.firm() && (seat.token < to || seat.token == to && seat.heard < since) {
				behind = append(behind, one{p, driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: seat.token}, seat.heard < since})
			}
		}
		r.mu.Unlock()
		done, asked := make(chan error, len(s.posts)), len(behind)
		for _, o := range behind {
			s.raiseOne(r, o.p, stamp, o.h, to, o.renew, done)
		}
		if asked == 0 {
			return driver.ErrUnavailable // they have gone meanwhile
		}
		var errs []error
		for n := 0; n < asked; n++ {
			select {
			case err := <-done:
				if err != nil {
					errs = append(errs, err)
				}
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
			}
			r.mu.Lock()
			ok := r.agreed(since) != 0
			r.mu.Unlock()
			if ok {
				return nil
			}
		}
		if len(errs) > 0 {
			return s.b.verdict(errs)
		}
	}
	return driver.ErrUnavailable
}

// raiseOne raises the token of a grant at one server.
func (s *session) raiseOne(r *request, p *post, stamp int64, h driver.Hold, to uint64, renew bool, done chan<- error) {
	var token uint64
	sent := s.clock.now()
	s.at(p, func(ctx context.Context, m member) (err error) {
		var clock time.Duration
		if token, clock, err = m.Raise(ctx, h, to, renew); err == nil {
			s.clock.saw(p.index, sent, clock)
		}
		return err
	}, func(err error) {
		r.mu.Lock()
		seat := &r.seats[p.index]
		switch {
		case err == nil && renew:
			r.granted(p.index, stamp, token)
		case err == nil && seat.state == granted && seat.token == h.Token:
			seat.token = token
		case driver.IsOver(err):
			r.gone(p.index, stamp)
			// Nobody knows whether it is in line there: the grant was over, or a stranger's push has told of it.
			if r.driver.Wait && r.token == 0 && !r.over && !r.asking {
				s.wake(r, 0)
			}
		case err != nil:
			r.fails(p.index, stamp, err)
		}
		r.mu.Unlock()
		done <- err
	})
}

// claimAfter is how long those who have some servers wait for more before they ask others to
// give way, or those who have a majority before they raise its tokens. What is on its way by
// then is seldom later.
const claimAfter = time.Millisecond

// moment is claimAfter, or longer where the servers are far or busy.
func (s *session) moment() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(claimAfter, 2*s.pace), s.ttl/6)
}

// claim does what must be done when nothing more comes by itself: it asks those who have the other
// servers to give way, or brings a majority to one token.
func (s *session) claim(r *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rank := r.rank()
	if r.over || r.token != 0 || r.asking || rank < 0 || r.raising {
		r.timer = nil
		return
	}
	r.claims++
	if rank == 0 { // they have given different tokens
		r.timer, r.raising = nil, true
		s.background(func() { s.confirm(r) })
		return
	}
	r.timer = time.AfterFunc(min(s.moment()<<min(r.claims, 20), s.ttl/6), func() { s.claim(r) })
	s.claimAll(r, rank)
	if r.claims < askAgain {
		return
	}
	for i, p := range s.posts { // what was asked there may have been done, and the answer lost
		if seat := &r.seats[i]; (seat.state == nothing || seat.state == granted) && seat.failed > seat.heard {
			stamp := s.stamp.Add(1)
			s.background(func() { s.askOne(r, p, stamp, s.clock.propose()) })
		}
	}
}

// askAgain is after how many claims those are asked again that did not answer.
const askAgain = 3

// claimAll asks every server that has r in line. Called with r.mu held.
func (s *session) claimAll(r *request, rank int) {
	for i, p := range s.posts {
		if r.seats[i].state != waiting {
			continue
		}
		stamp := r.seats[i].heard
		s.at(p, func(ctx context.Context, m member) error {
			return m.Claim(ctx, r.driver.Name, r.driver.ID, rank)
		}, func(err error) {
			if errors.Is(err, driver.ErrGone) {
				s.background(func() { s.rejoin(r, p, stamp) })
			}
		})
	}
}

// grantedAt notes that p has granted r, in the exchange that was sent as stamp. Called with r.mu held.
//
// The grant may be one that was offered to another, of which p has not heard: the offer was lost, or it is on its
// way and may arrive at any time. Under a larger token it is void, and then the grant counts again.
func (s *session) grantedAt(r *request, p *post, stamp int64, token uint64) {
	r.granted(p.index, stamp, token)
	if seat := &r.seats[p.index]; token > seat.yielded || seat.state != nothing || seat.shut || r.over {
		return
	}
	h := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: token}
	s.background(func() {
		done := make(chan error, 1)
		s.raiseOne(r, p, s.stamp.Add(1), h, token+1, true, done)
		<-done
		r.mu.Lock()
		defer r.mu.Unlock()
		s.settle(r)
	})
}

// rejoin asks a server again that says that it does not have r in line. What was heard is the
// exchange that had said otherwise.
func (s *session) rejoin(r *request, p *post, heard int64) {
	r.mu.Lock()
	seat := &r.seats[p.index]
	again := !r.over && seat.state == waiting && seat.heard == heard
	r.mu.Unlock()
	if again {
		s.askOne(r, p, s.stamp.Add(1), s.clock.propose())
	}
}

// claimed is told that another asks the request id to give way at p.
func (s *session) claimed(p *post, id string, rank int, by string) {
	r := s.find(id)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if seat := &r.seats[p.index]; seat.state == waiting && !r.over {
		// The server says that r holds it, which was not heard here.
		heard := seat.heard
		s.background(func() { s.rejoin(r, p, heard) })
		return
	}
	if !r.gives(p.index, rank) {
		return
	}
	stamp := s.stamp.Add(1)
	h := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: r.seats[p.index].token}
	place, _ := r.place()
	var wake <-chan uint64
	s.at(p, func(ctx context.Context, m member) (err error) {
		wake, place, err = m.Yield(ctx, h, by, place)
		return err
	}, func(err error) {
		s.background(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case r.over:
				if wake != nil {
					s.cancelOne(p, h.Name, h.ID, func(error) {})
				}
			case r.seats[p.index].state != leaving: // something newer is known
			case err == nil && wake != nil:
				r.waits(p.index, max(stamp, r.seats[p.index].heard), place, driver.Reply{Wake: wake})
				r.pushed(p.index)
				s.settle(r)
			case driver.IsOver(err):
				r.gone(p.index, max(stamp, r.seats[p.index].heard))
			default: // it may have done it or not, or be about to
				r.seats[p.index].state = nothing
				r.fails(p.index, stamp, err)
			}
		})
	})
}

// align gives r the place in the other lines that it has in the first. Called with r.mu held.
func (s *session) align(r *request) {
	place, first := r.place()
	if place == 0 || r.over {
		return
	}
	for i, p := range s.posts {
		if seat := &r.seats[i]; i != first && seat.state == waiting && seat.place != place {
			seat.place = place
			s.at(p, func(ctx context.Context, m member) error {
				return m.Move(ctx, r.driver.Name, r.driver.ID, place)
			}, func(error) {}) // it is for the order only
		}
	}
}
