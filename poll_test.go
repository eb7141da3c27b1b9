package holdfast_test

import (
	"context"
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
