package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Calls that wait in line for a read lock know how many are before them, also after a call for writing has
// come and some of those before have given up.
func TestReadersAheadBesideAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		first := lock(t, client(t, store, nil), "x")
		waiting := reads(t, c, 1)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { _, err := c.RWMutex("x").RLock(ctx); gaveUp <- err }()
		synctest.Wait()
		waiting = append(waiting, reads(t, c, 1)...)
		writer := lockAsync(t, c.RWMutex("x").Lock)
		stillWaiting(t, "a writer", writer)
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		var ahead []int
		for _, w := range c.Wanted() {
			if w.Mode == holdfast.ModeShared {
				ahead = append(ahead, w.Ahead)
			}
		}
		slices.Sort(ahead) // they came at the same time of this test
		if len(ahead) != 2 || ahead[0] != 0 || ahead[1] != 1 {
			t.Errorf("calls before the readers: %v; want 0 and 1", ahead)
		}
		release(t, first)
		for _, ch := range waiting {
			release(t, acquired(t, "a reader", ch))
		}
		release(t, acquired(t, "the writer", writer))
	})
}
