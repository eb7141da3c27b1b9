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

// lostOnce is a store that does an operator's first change, loses the answer, and lets other
// clients act then.
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

func (b *lostOnce) RemoveLatch(ctx context.Context, name string) error {
	return b.lose(b.Backend.RemoveLatch(ctx, name))
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

// One Remove ends one latch. It does not end the next latch of that name, which another client has
// made meanwhile.
func TestRemovedOnce(t *testing.T) {
	t.Parallel()
	b, operator, other := pair(t)
	ctx := t.Context()
	if _, err := other.Latch("x").Set(ctx, 3); err != nil {
		t.Fatal(err)
	}
	b.then = func() {
		if created, err := other.Latch("x").Set(ctx, 5); !created || err != nil {
			t.Errorf("second Set: %v, %v", created, err)
		}
	}
	err := operator.Latch("x").Remove(ctx)
	t.Logf("Remove: %v", err)
	if _, err := other.Latch("x").CountDown(ctx, "a"); errors.Is(err, holdfast.ErrGone) {
		t.Errorf("CountDown of the second latch: %v", err)
	}
}

// A limit that another operator has set meanwhile stays.
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
		t.Errorf("the limit is %d (%v); want 9, which was set last", r.Limit, err)
	}
}
