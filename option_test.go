package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A pause of hundreds of years is a pause, too.
func TestPollForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		defer release(t, lock(t, client(t, store, nil), "x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := client(t, store, nil)
		refused(t, context.DeadlineExceeded)(c.Mutex("x", holdfast.Poll(1<<63-1, 2)).Lock(ctx))
		refused(t, context.DeadlineExceeded)(c.Mutex("x", holdfast.Poll(1<<61, 1<<62)).Lock(ctx))
	})
}

// An option that is nil is reported, as one that is not allowed.
func TestNilOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		var none holdfast.Option
		refused(t, holdfast.ErrInvalid)(c.Mutex("x", none, holdfast.Fair()).Lock(t.Context()))
		refused(t, holdfast.ErrInvalid)(c.RWMutex("x", none).RLock(t.Context()))
		refused(t, holdfast.ErrInvalid)(c.Election("x", none).Campaign(t.Context()))
		if _, err := c.OnlyOne(t.Context(), "x", time.Hour, nil, none); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("OnlyOne: %v", err)
		}
	})
}
