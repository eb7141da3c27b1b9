package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// limited is a store that keeps less than it could.
type limited struct {
	driver.Backend
	kinds driver.Kinds
}

func (b *limited) Kinds() driver.Kinds { return b.kinds }

// What the store does not keep is refused before the store is asked, in words that say what it
// keeps.
func TestKindsThatAStoreLacks(t *testing.T) {
	t.Parallel()
	asked := false
	store := &limited{Backend: &hooks{
		Backend: memlock.New(),
		acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			asked = true
			return next()
		},
	}}
	c := client(t, store, nil)
	ctx := t.Context()
	refused := func(what, keeps string, call func() error) {
		t.Helper()
		err := call()
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.HasSuffix(err.Error(), "keeps "+keeps) || asked {
			t.Errorf("%s: %v; want ErrInvalid that ends with %q; the store was asked: %t", what, err, keeps, asked)
		}
	}
	taken := func(l *holdfast.Lease, err error) error {
		if err == nil {
			release(t, l)
		}
		return err
	}
	refused("RLock", "mutexes", func() error { return taken(c.RWMutex("x").RLock(ctx)) })
	refused("RWMutex.Lock", "mutexes", func() error { return taken(c.RWMutex("x").Lock(ctx)) })
	refused("MinHold", "mutexes", func() error { return taken(c.Mutex("x", holdfast.MinHold(time.Second)).Lock(ctx)) })
	refused("Acquire", "mutexes", func() error { return taken(c.Semaphore("x", 3).Acquire(ctx, 1)) })
	refused("SetLimit", "mutexes", func() error { return c.SetLimit(ctx, "x", 3) })
	store.kinds = driver.Kinds{Shared: true, MinHold: true}
	refused("Latch.Set", "mutexes, read/write locks, minimum holds",
		func() error { _, err := c.Latch("x").Set(ctx, 1); return err })
	refused("Latch.Wait", "mutexes, read/write locks, minimum holds", func() error { return c.Latch("x").Wait(ctx) })
	refused("Latch.Remove", "mutexes, read/write locks, minimum holds", func() error { return c.Latch("x").Remove(ctx) })
	store.kinds.Setting = "protocol=single"
	if _, err := c.Latch("x").Set(ctx, 1); !strings.Contains(err.Error(),
		"this store (memory with protocol=single) keeps no latches") {
		t.Errorf("%v: it does not name the setting", err)
	}
	for what, err := range map[string]error{
		"Mutex": taken(c.Mutex("x", holdfast.MinHold(time.Millisecond)).Lock(ctx)),
		"RLock": taken(c.RWMutex("y").RLock(ctx)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
