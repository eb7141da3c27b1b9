//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// callLimit is the deadline of each call to a frozen store.
const callLimit = 100 * time.Millisecond

// freezes calls a client's methods while the servers are frozen: each must return the error of its
// context. The table gets how long each took.
func freezes(t *testing.T, d deployment, rounds int, table *callTable) {
	cfg := &holdfast.Config{TTL: time.Minute}
	fresh := func() *holdfast.Client {
		c, err := holdfast.New(t.Context(), d, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) }) // it may be closed already
		return c
	}
	for round := range rounds {
		c, other := fresh(), fresh()
		prefix := fmt.Sprint("frozen/", round, "/")
		held, err := c.Mutex(prefix + "held").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		thaw := d.freeze()
		func() {
			defer thaw()
			for _, call := range calls(c, other, prefix, held.Token(), func(ctx context.Context) error {
				l, err := holdfast.New(ctx, d, cfg)
				if err == nil {
					_ = l.Close(ctx) // no request was sent
				}
				return err
			}) {
				ctx, cancel := context.WithTimeout(t.Context(), callLimit)
				begun := time.Now()
				err := call.do(ctx)
				took := time.Since(begun)
				cancel()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					table.add(t.Name(), call.name, took)
				case errors.Is(err, holdfast.ErrInvalid), err == nil && call.local: // not sent
				default:
					t.Errorf("%s of a frozen store: %v; want context.DeadlineExceeded", call.name, err)
				}
			}
		}()
		_ = held.Release() // a connection may not know that the store continues
	}
}

type call struct {
	name string
	do   func(context.Context) error
	// Some stores need no server for it: a locked file can be read, and SQL has no sessions.
	local bool
}

// calls are the methods that take a context.
func calls(c, other *holdfast.Client, prefix string, token uint64, open func(context.Context) error) []call {
	lease := func(name string, f func(context.Context) (*holdfast.Lease, error)) call {
		return call{name, func(ctx context.Context) error { _, err := f(ctx); return err }, false}
	}
	nothing := func(context.Context) error { return nil }
	m, rw, s := c.Mutex(prefix+"m"), c.RWMutex(prefix+"rw"), c.Semaphore(prefix+"s", 3)
	latch, boss := c.Latch(prefix+"l"), c.Election(prefix+"boss")
	return []call{
		lease("Mutex.Lock", m.Lock),
		lease("Mutex.TryLock", m.TryLock),
		{"Mutex.Do", func(ctx context.Context) error { return m.Do(ctx, nothing) }, false},
		lease("RWMutex.RLock", rw.RLock),
		lease("RWMutex.Lock", rw.Lock),
		{"Semaphore.Acquire", func(ctx context.Context) error { _, err := s.Acquire(ctx, 2); return err }, false},
		{"LockAll", func(ctx context.Context) error { _, err := holdfast.LockAll(ctx, m, rw); return err }, false},
		{"Latch.Set", func(ctx context.Context) error { _, err := latch.Set(ctx, 2); return err }, false},
		{"Latch.CountDown", func(ctx context.Context) error { _, err := latch.CountDown(ctx, "c-1"); return err }, false},
		{"Latch.Wait", latch.Wait, false},
		lease("Election.Campaign", boss.Campaign),
		{"Election.Leader", func(ctx context.Context) error { _, err := boss.Leader(ctx); return err }, true},
		{"Client.Inspect", func(ctx context.Context) error { _, err := c.Inspect(ctx, prefix+"m"); return err }, true},
		{"Client.Locks", func(ctx context.Context) error {
			for _, err := range c.Locks(ctx, prefix) {
				return err
			}
			return nil
		}, true},
		{"Client.Break", func(ctx context.Context) error { return c.Break(ctx, prefix+"held", token, "") }, false},
		{"Client.SetLimit", func(ctx context.Context) error { return c.SetLimit(ctx, prefix+"s", 5) }, false},
		{"New", open, true},
		{"Client.Close", other.Close, true},
	}
}

// callTable is how long calls took, by store and call.
type callTable struct {
	mu   sync.Mutex
	took map[string]map[string][]time.Duration
}

func (c *callTable) add(test, name string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	store := strings.Split(test, "/")[1]
	if c.took == nil {
		c.took = map[string]map[string][]time.Duration{}
	}
	if c.took[store] == nil {
		c.took[store] = map[string][]time.Duration{}
	}
	c.took[store][name] = append(c.took[store][name], took)
}

// String returns a table for a document: the shortest and the longest time of each call.
func (c *callTable) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	stores := slices.Sorted(maps.Keys(c.took))
	var b strings.Builder
	fmt.Fprintf(&b, "\n| call | %s |\n|---|%s\n", strings.Join(stores, " | "), strings.Repeat("---|", len(stores)))
	for _, k := range calls(new(holdfast.Client), new(holdfast.Client), "", 0, nil) {
		fmt.Fprintf(&b, "| %s |", k.name)
		for _, s := range stores {
			if all := c.took[s][k.name]; len(all) > 0 {
				fmt.Fprintf(&b, " %d – %d |", slices.Min(all).Milliseconds(), slices.Max(all).Milliseconds())
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
