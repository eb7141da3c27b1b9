package sqllock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/driver"
)

// Cancellations that arrive during an exchange share the next one.
func TestCancelsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cancels
		var rounds [][]string
		hold := make(chan struct{})
		f := func(ids []string) error {
			rounds = append(rounds, ids)
			<-hold
			return nil
		}
		var all sync.WaitGroup
		for _, id := range []string{"a", "b", "c", "d"} {
			all.Go(func() {
				if err := c.together(t.Context(), "x", id, f); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
			synctest.Wait()
		}
		other := make(chan error)
		go func() { other <- c.together(t.Context(), "y", "e", func([]string) error { return nil }) }()
		if err := <-other; err != nil {
			t.Errorf("another name: %v", err)
		}
		close(hold)
		all.Wait()
		if len(rounds) != 2 || len(rounds[0]) != 1 || len(rounds[1]) != 3 {
			t.Errorf("cancelled in rounds %q; want a round of one, then one of three", rounds)
		}
		if len(c.by) != 0 {
			t.Errorf("state is left: %v", c.by)
		}
	})
}

// A caller that gives up, as leader or during the exchange, takes no other with it. All callers get
// an error of the store.
func TestCancelsThatAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cancels
		ctx, giveUp := context.WithCancel(t.Context())
		hold := make(chan struct{})
		done := map[string]int{}
		broken := errors.New("broken")
		f := func(ids []string) error {
			for _, id := range ids {
				done[id]++
			}
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
			if len(ids) > 1 {
				return broken
			}
			return nil
		}
		results := map[string]error{}
		var mu sync.Mutex
		var all sync.WaitGroup
		ask := func(ctx context.Context, id string) {
			all.Go(func() {
				err := c.together(ctx, "x", id, f)
				mu.Lock()
				defer mu.Unlock()
				results[id] = err
			})
			synctest.Wait()
		}
		ask(t.Context(), "in progress")
		ask(ctx, "leads")
		ask(ctx, "follows and gives up")
		ask(t.Context(), "one")
		ask(t.Context(), "two")
		giveUp() // f ends for the first too: its own context continues, so this is the store's error
		all.Wait()
		for id, want := range map[string]error{"leads": driver.ErrUnavailable, "follows and gives up": driver.ErrUncertain,
			"in progress": context.Canceled} {
			if !errors.Is(results[id], want) {
				t.Errorf("%s: %v; want %v", id, results[id], want)
			}
		}
		if results["one"] == nil || results["two"] == nil || done["one"] != 1 || done["two"] != 1 {
			t.Errorf("callers that did not give up: %v, %v; tried %v", results["one"], results["two"], done)
		}
		if len(c.by) != 0 {
			t.Errorf("state is left: %v", c.by)
		}
	})
}
