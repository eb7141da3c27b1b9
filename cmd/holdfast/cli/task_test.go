package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A signal that arrives between the grant and the start of the command ends the lease. A minimum
// hold does not keep the name, since the command has not run.
func TestSignalAfterTheGrant(t *testing.T) {
	ctx := t.Context()
	c, err := holdfast.New(ctx, memlock.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	signals := make(chan os.Signal, 1)
	waiting := &task{signals: signals}
	_, err = waiting.take(func(ctx context.Context) (*hold, error) {
		m, err := holdfast.LockAll(t.Context(), c.Mutex("x", holdfast.MinHold(time.Hour)))
		if err != nil {
			return nil, err
		}
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return &hold{lease: m, parts: m.Leases()}, nil
	})
	if !errors.As(err, new(signaled)) {
		t.Errorf("take: %v; want the signal", err)
	}
	if l, err := c.Mutex("x").TryLock(ctx); err != nil {
		t.Errorf("the name is not free: %v", err)
	} else if err := l.Release(); err != nil {
		t.Error(err)
	}
}
