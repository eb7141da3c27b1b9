package sqllock

import (
	"context"
	"time"
)

// SweepStep lets a test of a real server take the sweep's steps.
func SweepStep(ctx context.Context, b *Server, cursor []byte, idle time.Duration) (next []byte, err error) {
	return b.sweepFrom(ctx, cursor, idle)
}
