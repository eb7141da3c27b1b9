package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// lateModels are models in which some messages reach a server when their sender has given them up: such as a
// cancellation that arrives when the same request has been granted again. Clients that try have several
// tries under one ID.
var lateModels = map[string]model{
	"well":                  {servers: 3, tries: true},
	"late":                  {servers: 3, tries: true, linger: 0.03},
	"late, five":            {servers: 5, tries: true, linger: 0.03},
	"late and lost":         {servers: 3, tries: true, linger: 0.03, lose: 0.02},
	"late, long":            {servers: 3, tries: true, linger: 0.02, slow: 100 * time.Second},
	"late, long, and lost":  {servers: 5, tries: true, linger: 0.05, lose: 0.02, slow: 100 * time.Second},
	"late, and one is dead": {servers: 3, tries: true, dead: 1, linger: 0.01, slow: 100 * time.Second},
	"late, and one forgets": {servers: 3, tries: true, dead: 1, forget: true, linger: 0.02, slow: 100 * time.Second},
	"keeps":                 {servers: 3, tries: true, minimums: true},
	"keeps, late":           {servers: 3, tries: true, minimums: true, linger: 0.03},
	"keeps, late and lost":  {servers: 5, tries: true, minimums: true, linger: 0.03, lose: 0.02, slow: 30 * time.Second},
	"keeps, one is dead":    {servers: 3, tries: true, minimums: true, dead: 1, lose: 0.02, slow: 30 * time.Second},
	"waits, late":           {servers: 3, linger: 0.01, lose: 0.01, patience: time.Hour},
	"waits, late, five":     {servers: 5, linger: 0.02, patience: time.Hour},
	"waits, late, forgets":  {servers: 5, dead: 2, forget: true, apart: true, linger: 0.02, patience: time.Hour},
	"rents, late":           {servers: 3, linger: 0.02, short: true},
	"rents, late, five":     {servers: 5, linger: 0.02, lose: 0.02, short: true},
	"rents, late, one forgets": {servers: 3, dead: 1, forget: true, apart: true, linger: 0.02, short: true,
		slow: 30 * time.Second},
}

// TestModelOfLateRequests is TestModel with such messages.
func TestModelOfLateRequests(t *testing.T) {
	t.Parallel()
	runModels(t, lateModels, 2)
}

// grab takes the lock without waiting, renews it as package holdfast does, and releases it.
func (m model) grab(ctx context.Context, s *session, y *account, client int) {
	c := &lessee{y, s, rand.New(rand.NewPCG(y.seed, uint64(client)+1)), nil, 0}
	for round := range modelRounds {
		if m.minimums {
			c.minimum = minimumHold(c.rng)
		}
		token, sent := c.try(ctx, fmt.Sprintf("c%d-%d", client, round))
		if token == 0 {
			return
		}
		y.waited(sent)
		y.keep(sent.Add(c.minimum))
		y.enter(token, c.req.Block())
		c.keep(ctx, driver.Hold{Name: "x", ID: c.req.ID, Token: token}, sent.Add(relied(0)),
			time.Duration(c.rng.Int64N(int64(max(m.slow, 3*time.Millisecond)))))
		y.leave()
		_ = s.Release(s.limited(), driver.Hold{Name: "x", ID: c.req.ID, Token: token}, 0)
	}
}

// try asks until the lock is granted, under a new ID each time. It returns the token, and when the exchange
// was sent that the lease counts from.
func (c *lessee) try(ctx context.Context, id string) (uint64, time.Time) {
	for n := range 100_000 {
		c.req = &driver.Request{ID: fmt.Sprint(id, "-", n), Name: "x", Mode: driver.Exclusive, N: 1,
			MinHold: c.minimum, Tokens: someTokens(c.rng)}
		bound, end := context.WithTimeout(ctx, 5*time.Second)
		sent := time.Now()
		reply, err := c.s.Acquire(bound, c.req)
		end()
		if err == nil && reply.Token != 0 {
			return reply.Token, sent
		}
		if err != nil {
			bound, end := context.WithTimeout(ctx, 5*time.Second)
			_ = c.s.Cancel(bound, "x", c.req.ID) // what it does not reach expires
			end()
		}
		backoff.Sleep(ctx, time.Duration(1+c.rng.IntN(20*(1+min(n, 50))))*time.Millisecond)
	}
	c.y.fail("never granted")
	return 0, time.Time{}
}

// keep holds the lock for d, or until the lease is over. The lease can be trusted until then.
func (c *lessee) keep(ctx context.Context, h driver.Hold, until time.Time, d time.Duration) {
	over := time.Now().Add(d)
	for {
		time.Sleep(min(modelTTL/3, time.Until(over), time.Until(until)))
		if !time.Now().Before(over) || !time.Now().Before(until) {
			return
		}
		bound, end := context.WithDeadline(ctx, until)
		sent := time.Now()
		changes, err := c.s.Renew(bound, []driver.Hold{h})
		end()
		switch {
		case err == nil && len(changes) == 0:
			until = sent.Add(relied(0))
		case err == nil && changes[0].State == driver.Gone:
			return
		}
	}
}
