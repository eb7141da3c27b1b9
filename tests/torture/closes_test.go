//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// closes closes clients while they lock free names and one name that is held. None leaves a grant
// or a place in the queue. The TTL is an hour, so anything left would be found.
func closes(t *testing.T, b driver.Backend, rounds int) {
	cfg := &holdfast.Config{TTL: longest}
	other, err := holdfast.New(t.Context(), b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	held, err := other.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		c, err := holdfast.New(t.Context(), b, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for _, lock := range []string{"held", "free", "free", fmt.Sprint("own/", round%10)} {
			calls.Go(func() {
				for {
					l, err := c.Mutex(lock).Lock(t.Context())
					if err != nil {
						if !errors.Is(err, holdfast.ErrClosed) {
							t.Errorf("round %d: Lock during Close: %v", round, err)
						}
						return
					}
					if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrReleased) {
						t.Errorf("round %d: Release during Close: %v", round, err)
					}
				}
			})
		}
		time.Sleep(rand.N(3 * time.Millisecond))
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		calls.Wait()
	}
	list, err := b.List(t.Context(), "", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Name == "held" && len(r.Waiters) == 0 || len(r.Holders)+len(r.Waiters) == 0 {
			continue
		}
		t.Errorf("left after %d closes: %+v", rounds, r)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}
