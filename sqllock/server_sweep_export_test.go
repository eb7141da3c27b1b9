package sqllock

import (
	"context"
	"time"
)

// SweepStep performs one step of the sweep, for tests with a real server.
func SweepStep(ctx context.Context, b *Server, cursor []byte, idle time.Duration) (next []byte, err error) {
	return b.sweepFrom(ctx, cursor, idle)
}
