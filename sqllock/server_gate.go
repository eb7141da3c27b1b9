package sqllock

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
)

// How many connections of the pool a Server uses at once, whatever the pool allows: for requests, which come in crowds and
// may wait for rows, and for everything else, which must not wait for those. A server has some hundred for everybody.
const (
	requestsAtOnce = 32
	othersAtOnce   = 16
)

// gate lets some through at a time, in the order in which they come.
type gate chan struct{}

// enter returns when there is room; what is done until leave must not enter again.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: too much else was asked at once: %w", driver.ErrUnavailable, ctx.Err())
	}
}

func (g gate) leave() { <-g }

// inside marks the context of what has entered a gate.
type inside struct{}

func isInside(ctx context.Context) bool { return ctx.Value(inside{}) != nil }

// inGate returns ctx for what has entered a gate.
func inGate(ctx context.Context) context.Context { return context.WithValue(ctx, inside{}, true) }
