package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// exchangeLimit bounds one exchange with a store that does not answer; a short TTL bounds it more.
// Every exchange may be repeated, so the caller decides what follows.
const exchangeLimit = 5 * time.Second

func (c *Client) limit() time.Duration {
	return min(max(c.TTL()/3, 500*time.Millisecond), exchangeLimit)
}

// silentAfter returns how long an answer may take before the store counts as silent.
func (c *Client) silentAfter() time.Duration { return min(c.limit(), 500*time.Millisecond) }

// bounds makes contexts that end after about a given time. Exchanges that start at about the same
// time share one: a context and a timer for each would be the largest cost of an uncontended lock
// here.
type bounds struct {
	mu    sync.Mutex
	ctx   context.Context
	until time.Time // when the next one is made
}

// shared returns a context without values that ends between d and 9/8 of d from now.
func (b *bounds) shared(d time.Duration) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.ctx == nil || !now.Before(b.until) {
		b.until = now.Add(d / 8)
		ctx, cancel := context.WithDeadline(context.Background(), b.until.Add(d))
		_ = cancel // its timer ends it: exchanges may still run under it when the next is made
		b.ctx = driver.OwnBound(ctx)
	}
	return b.ctx
}

// bound limits one exchange on behalf of ctx.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := c.limit()
	if ctx.Done() == nil {
		return c.bounds.shared(limit), func() {}
	}
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= limit {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// explain returns a store's error for the caller whose context is ctx. Our own time limits and the
// store's also end in context errors, which the caller did not set. Only the end of ctx itself
// makes an error that is context.DeadlineExceeded or Canceled.
func explain(ctx context.Context, err error) error {
	ended := ctx.Err()
	if deadline, ok := ctx.Deadline(); ended == nil && ok && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded // a store may have noticed sooner
	}
	switch {
	case err == nil:
	case ended == nil:
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return driver.NotCallers(err)
		}
	case !final(err) && !errors.Is(err, ended):
		if ctx.Err() != nil {
			ended = cause(ctx)
		}
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// missing adds to an ErrGone what is not there.
func missing(err error, what string, args ...any) error {
	if !errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("%w: %s", err, fmt.Sprintf(what, args...))
}

// repeatRead runs exchange, which changes nothing. If the answer is lost soon, it asks again: the
// connection may have ended while idle, and the store may be healthy. It does not ask a silent
// store again, since the caller has waited long enough.
func (c *Client) repeatRead(ctx context.Context, exchange func() error) error {
	_, err := c.repeat(ctx, exchange)
	return err
}

// repeatChange is repeatRead for an exchange that changes something. If the first exchange was not
// answered, only success is certain: any other answer may follow from that exchange.
func (c *Client) repeatChange(ctx context.Context, exchange func() error) error {
	first, err := c.repeat(ctx, exchange)
	if first != nil && err != nil {
		return fmt.Errorf("%w; asked again: %v", first, err)
	}
	return err
}

// repeat returns the last error, and the first one if it has asked more than once.
func (c *Client) repeat(ctx context.Context, exchange func() error) (first, last error) {
	sent, pause := c.coarseNow(), backoff.Pause{First: firstPause, Most: 100 * time.Millisecond}
	last = exchange()
	for leftOpen(last) && !final(last) && ctx.Err() == nil && c.coarseNow()-sent < c.silentAfter() {
		if first == nil {
			first = last
		} else if !pause.Wait(ctx) {
			break
		}
		last = exchange()
	}
	return first, last
}

// pause sleeps for d, or returns why to stop.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	case <-c.openCtx.Done():
		return ErrClosed
	}
}

// isOpen reports whether Close has not begun.
func (c *Client) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// cause returns the error of a context that has ended, with its Cause.
func cause(ctx context.Context) error {
	if c := context.Cause(ctx); c != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), c)
	}
	return ctx.Err()
}
