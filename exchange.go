package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/limit"
)

// exchangeLimit bounds one exchange with a store that does not answer; a short TTL
// bounds it more. What then happens to the request is up to the caller: all of them
// may be repeated.
const exchangeLimit = 5 * time.Second

func (c *Client) limit() time.Duration {
	return min(max(c.TTL()/3, 500*time.Millisecond), exchangeLimit)
}

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
		b.ctx = limit.Own(ctx)
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
