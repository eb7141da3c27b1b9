package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// lostOnce is a store whose first answer to an operator's change is lost after it was done; then others do something.
type lostOnce struct {
	driver.Backend
	then func()
}

func (b *lostOnce) lose(err error) error {
	if then := b.then; then != nil && err == nil {
		b.then = nil
		then()
		return fmt.Errorf("%w: the connection has ended", driver.ErrUncertain)
	}
	return err
}

func (b *lostOnce) Break(ctx context.Context, name string, token uint64) error {
	return b.lose(b.Backend.Break(ctx, name, token))
}

func (b *lostOnce) SetLimit(ctx context.Context, name string, limit int) error {
	return b.lose(b.Backend.SetLimit(ctx, name, limit))
}

func pair(t *testing.T) (b *lostOnce, operator, other *holdfast.Client) {
	t.Helper()
	store := memlock.New()
	b = &lostOnce{Backend: store}
	client := func(b driver.Backend) *holdfast.Client {
		c, err := holdfast.New(t.Context(), b, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	return b, client(b), client(store)
}

// TestRemovedOnce: one Remove ends one latch, not the next of that name as well, which another sets when it has seen that
// the first is gone.
func TestRemovedOnce(t *testing.T) {
	t.Parallel()
	b, operator, other := pair(t)
	ctx := t.Context()
	if _, err := other.Latch("x").Set(ctx, 3); err != nil {
		t.Fatal(err)
	}
	b.then = func() {
		if created, err := other.Latch("x").Set(ctx, 5); !created || err != nil {
			t.Errorf("Set anew: %v, %v", created, err)
		}
	}
	err := operator.Latch("x").Remove(ctx)
	t.Logf("Remove: %v", err)
	if _, err := other.Latch("x").CountDown(ctx, "a"); errors.Is(err, holdfast.ErrGone) {
		t.Errorf("CountDown of the latch that was set anew: %v", err)
	}
}

// TestLimitedOnce: the limit that another operator has set meanwhile stays.
func TestLimitedOnce(t *testing.T) {
	t.Parallel()
	b, operator, other := pair(t)
	ctx := t.Context()
	l, err := other.Semaphore("x", 3).Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	b.then = func() {
		if err := other.SetLimit(ctx, "x", 9); err != nil {
			t.Error(err)
		}
	}
	if err := operator.SetLimit(ctx, "x", 1); err != nil {
		t.Logf("SetLimit: %v", err)
	}
	if r, err := other.Inspect(ctx, "x"); err != nil || r.Limit != 9 {
		t.Errorf("the limit is %d (%v); the last who set it, and was told so, said 9", r.Limit, err)
	}
}
