package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// exchangeLimit bounds one exchange with a store that does not answer; a short TTL
// bounds it more. What then happens to the request is up to the caller: all of them
// may be repeated.
const exchangeLimit = 5 * time.Second

func (c *Client) limit() time.Duration {
	return min(max(c.TTL()/3, 500*time.Millisecond), exchangeLimit)
}

// usual is how long an answer may take before the store counts as silent.
func (c *Client) usual() time.Duration { return min(c.limit(), 500*time.Millisecond) }

// bounds hands out contexts that end after about a given time. Exchanges that start
// at about the same time share one: a context with a timer of its own for each would be
// most of what an uncontended lock costs here.
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
		_ = cancel // it is left to its timer: exchanges may still run under it when the next is made
		b.ctx = driver.OwnBound(ctx)
	}
	return b.ctx
}

// bound limits one exchange made on behalf of ctx.
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

// explain returns what the caller whose context is ctx is told of a store's error. Bounds of
// our own, and of the store's, end in context errors, too. The caller did not set them: only
// the end of ctx itself makes an error that is context.DeadlineExceeded or Canceled.
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

// read asks the store. If the answer is lost soon it asks again: the connection had ended while
// nobody used it, as servers and networks end idle ones, and the store may be well. A store that is
// silent is not asked again, since the caller has waited long enough.
func (c *Client) read(ctx context.Context, ask func() error) error {
	_, err := c.repeat(ctx, ask)
	return err
}

// change is read for what changes something. Only success settles what has become of a change
// whose first exchange was not answered: any other answer may follow from that one.
func (c *Client) change(ctx context.Context, ask func() error) error {
	first, err := c.repeat(ctx, ask)
	if first != nil && err != nil {
		return fmt.Errorf("%w; asked again: %v", first, err)
	}
	return err
}

// repeat returns the last answer, and the first error if it has asked more than once.
func (c *Client) repeat(ctx context.Context, ask func() error) (first, last error) {
	sent, pause := c.soonest(), backoff{most: 100 * time.Millisecond}
	last = ask()
	for leftOpen(last) && ctx.Err() == nil && c.soonest()-sent < c.usual() {
		if first == nil {
			first = last
		} else if !sleep(ctx, pause.next()) {
			break
		}
		last = ask()
	}
	return first, last
}

// pause sleeps for d, or says why not to go on.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	case <-c.alive.Done():
		return ErrClosed
	}
}

// sleep waits for d, or returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// live reports whether the client is open.
func (c *Client) live() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// cause is the error of a context that has ended, with what its owner said of it.
func cause(ctx context.Context) error {
	if c := context.Cause(ctx); c != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), c)
	}
	return ctx.Err()
}
