package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// shortModels are models whose clients ask for leases of many lengths. Servers' clocks run faster than
// the clients', and are set forward by as little as nobody notices.
var shortModels = map[string]model{
	"well":                   {servers: 5, short: true},
	"three":                  {servers: 3, short: true},
	"one of three dead":      {servers: 3, dead: 1, short: true},
	"two of five dead":       {servers: 5, dead: 2, short: true},
	"answers get lost":       {servers: 5, lose: 0.1, short: true},
	"and of three":           {servers: 3, lose: 0.1, short: true},
	"a silent one, and lost": {servers: 5, dead: 1, lose: 0.05, apart: true, short: true},
	"one of three forgets": {servers: 3, dead: 1, forget: true, apart: true, lose: 0.02, short: true,
		slow: 30 * time.Second},
	"two of five forget": {servers: 5, dead: 2, forget: true, apart: true, lose: 0.02, short: true,
		slow: 30 * time.Second},
	"clients die beside them": {servers: 5, deaths: 3, lose: 0.02, short: true},
}

// TestModelOfLeases is TestModel with clients that behave as package holdfast does with leases of a
// given length. They renew, lengthen and shorten them, and then fall silent. No other client enters
// as long as one of them may rely on its lease, and the next one enters soon after.
func TestModelOfLeases(t *testing.T) {
	t.Parallel()
	runModels(t, shortModels, 2)
}

const (
	modelStep = modelTTL / slackPart // a smaller step of a clock is not noticed
	modelFast = 0.05                 // the clocks run so much faster; with a step it is within the margin
	keptMost  = 3 * time.Second      // the next client enters so long after it could know of the last lease's end
)

// relied returns for how long package holdfast relies on a lease.
func relied(lease time.Duration) time.Duration { return driver.LeaseWithin(lease, modelTTL) * 9 / 10 }

// stepping sets the clocks forward, each at most once per TTL.
func (w *world) stepping(ctx context.Context) {
	for backoff.Sleep(ctx, modelTTL) {
		for _, v := range w.servers {
			w.mu.Lock()
			d := time.Duration(w.rng.Int64N(int64(modelTTL / 10)))
			w.mu.Unlock()
			if !backoff.Sleep(ctx, d) {
				return
			}
			w.mu.Lock()
			v.step(modelStep)
			w.mu.Unlock()
		}
	}
}

// lessee is a client that takes a lease of some length.
type lessee struct {
	y   *account
	s   *session
	rng *rand.Rand
	req *driver.Request

	minimum time.Duration // of the next request
}

// length returns the length of a lease, as in driver.Request.
func (c *lessee) length() time.Duration {
	return []time.Duration{0, 2 * time.Second, 2 * time.Second, 5 * time.Second, 20 * time.Second}[c.rng.IntN(5)]
}

// rent takes the lock, renews it some times, and releases it or falls silent.
func (m model) rent(ctx context.Context, s *session, y *account, client int) {
	c := &lessee{y, s, rand.New(rand.NewPCG(y.seed, uint64(client)+1)), nil, 0}
	for round := range modelRounds {
		c.req = &driver.Request{ID: fmt.Sprintf("c%d-%d", client, round), Name: "x", Mode: driver.Exclusive, N: 1, Wait: true,
			Lease: c.length(), Tokens: someTokens(c.rng)}
		begin := time.Now()
		token, sent := c.take(ctx)
		if token == 0 {
			return
		}
		until := sent.Add(relied(c.req.Lease))
		y.enters(token, c.req.Block(), begin, driver.LeaseWithin(c.req.Lease, modelTTL)/3,
			m.dead == 0 && m.lose == 0 && m.linger == 0 && m.deaths == 0)
		y.lasts(sent.Add(driver.LeaseWithin(c.req.Lease, modelTTL) + modelStep))
		h := driver.Hold{Name: "x", ID: c.req.ID, Token: token}
		for range c.rng.IntN(4) {
			time.Sleep(min(time.Duration(c.rng.Int64N(int64(max(m.slow, 3*time.Second)))), time.Until(until)))
			until = c.renew(ctx, h, until)
		}
		early := c.rng.IntN(2) == 0
		if !early {
			time.Sleep(time.Until(until)) // silent: the lease ends here, and nobody is told
		}
		y.leave()
		if !early {
			c.late(ctx, h)
			continue
		}
		_ = s.Release(s.limited(), h, 0)
		y.lasts(time.Now())
	}
}

// renew renews the lease once, or twice at the same time. It returns until when it can be trusted.
func (c *lessee) renew(ctx context.Context, h driver.Hold, until time.Time) time.Time {
	type result struct {
		sent    time.Time
		lease   time.Duration
		changes []driver.Change
		err     error
	}
	n := 1 + c.rng.IntN(2)
	results := make(chan result, n)
	bound, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	for range n {
		h := h
		h.Lease = c.length()
		r := result{sent: time.Now(), lease: h.Lease}
		c.y.lasts(r.sent.Add(driver.LeaseWithin(h.Lease, modelTTL) + modelStep))
		go func() {
			r.changes, r.err = c.s.Renew(bound, []driver.Hold{h})
			results <- r
		}()
		time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Microsecond)
	}
	expiry := time.NewTimer(time.Until(until))
	defer expiry.Stop()
	for range n {
		select {
		case r := <-results:
			if valid := r.err == nil && len(r.changes) == 0; valid {
				if t := r.sent.Add(relied(r.lease)); t.After(until) {
					until = t
					expiry.Reset(time.Until(until))
				}
			}
		case <-expiry.C:
			return until
		}
	}
	return until
}

// late renews or releases a lease that is over here.
func (c *lessee) late(ctx context.Context, h driver.Hold) {
	time.Sleep(time.Duration(c.rng.Int64N(int64(8 * time.Second))))
	bound, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	if c.rng.IntN(2) == 0 {
		c.y.mu.Lock()
		others := c.y.last
		c.y.mu.Unlock()
		changes, err := c.s.Renew(bound, []driver.Hold{h})
		if err == nil && len(changes) == 0 && others > h.Token {
			c.y.fail("token %d is valid, but %d was granted since", h.Token, others)
		}
	} else if c.rng.IntN(2) == 0 {
		return
	}
	_ = c.s.Release(bound, h, 0)
	c.y.lasts(time.Now())
}

// take waits as package holdfast does for a lease of a given length. It returns the token, and when
// the exchange was sent that the lease counts from.
func (c *lessee) take(ctx context.Context) (uint64, time.Time) {
	ctx, cancel := context.WithTimeout(ctx, 20*modelTTL)
	defer cancel()
	own, length := c.req.Lease, driver.LeaseWithin(c.req.Lease, modelTTL)
	for ctx.Err() == nil {
		bound, end := context.WithTimeout(ctx, 5*time.Second)
		sent := time.Now()
		reply, err := c.s.Acquire(bound, c.req)
		end()
		switch {
		case err != nil:
			if errors.Is(err, driver.ErrSpent) {
				c.req.ID += "'"
			}
			backoff.Sleep(ctx, 20*time.Millisecond)
			continue
		case reply.Token != 0 && time.Since(sent) < length/3:
			return reply.Token, sent
		case reply.Token != 0:
			continue
		}
		beat := time.NewTimer(0)
		askAt := time.Time{} // when the lease in the way expires
		rest := func(retry time.Duration) {
			if retry > 0 {
				askAt = time.Now().Add(retry + time.Millisecond)
				beat.Reset(min(length/3, time.Until(askAt)))
			} else {
				beat.Reset(length / 3)
			}
		}
		rest(reply.Retry)
		for again := false; !again; {
			select {
			case token := <-reply.Wake:
				if token != 0 && own == 0 && time.Since(sent) < length/3 { // a short one is confirmed
					return token, sent
				}
				again = true
			case <-beat.C:
				if again = own != 0 || !askAt.IsZero() && !time.Now().Before(askAt); again {
					break
				}
				at := time.Now()
				changes, err := c.s.Renew(ctx, []driver.Hold{{Name: c.req.Name, ID: c.req.ID}})
				beat.Reset(length / 3)
				if err != nil || len(changes) != 1 {
					break
				}
				switch ch := changes[0]; ch.State {
				case driver.Granted:
					if time.Since(at) < length/3 {
						return ch.Token, at
					}
					again = true
				case driver.Gone:
					again = true
				case driver.Waiting:
					sent = at
					rest(ch.Retry)
				}
			case <-ctx.Done():
				again = true
			}
		}
		beat.Stop()
	}
	c.y.fail("never granted\n%s", c.s.describe())
	return 0, time.Now()
}

// enters is enter of a client that waits since begin, and asks each beat. If prompt, it enters soon
// after the lease of the last one has ended at the servers. It may learn of that end a beat later: a
// holder with a shorter lease than the one that it was told of may have come in between.
func (y *account) enters(token uint64, block int, begin time.Time, beat time.Duration, prompt bool) {
	y.enter(token, block)
	y.mu.Lock()
	defer y.mu.Unlock()
	if begin.Before(y.ends) {
		begin = y.ends
	}
	if d := time.Since(begin); prompt && d > beat+keptMost {
		y.wrong = append(y.wrong, fmt.Sprintf("entered %v after the last lease", d))
	}
	y.ends = time.Time{}
}

// lasts records that servers may keep the lease until then.
func (y *account) lasts(until time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if until.After(y.ends) {
		y.ends = until
	}
}
