// Package modeltest compares a store with package rule, step by step, over random histories of
// the actions of clients and operators, of time and of faults. The test moves the clock, so leases
// end to the microsecond. A failing history is shrunk to a short one.
//
// After each operation the answers, tokens, hand-overs and records of all names must be those of
// the rule. The records must also be consistent by themselves, since memlock is the rule.
package modeltest

import (
	"context"
	"errors"
	"flag"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/failing"
)

// Store is an empty store under test, and the faults that can be injected. Only Backend and Pass
// are required.
type Store struct {
	Backend driver.Backend

	// Pass moves the store's clock forward, and with it the clock of its driver.
	Pass func(d time.Duration)

	// Settle returns when all pushes so far have arrived. Nil: they arrive at once.
	Settle func()

	// Lose loses the pushes to a session until it is called again with false. Nil: the test ignores
	// pushes that arrive.
	Lose func(session string, lost bool)

	// Drop lets requests be done and loses their answers, until it is called again with false. Nil:
	// the test ignores the answers.
	Drop func(lost bool)

	// Kill has the effect of the end of the session's process, and returns when the store knows as
	// much about it as it ever will. Nil: the session only becomes silent.
	Kill func(session string)

	// Silent: a request that joins the queue may get no Holder.
	Silent bool

	// Death is how the store treats a session that was killed.
	Death Death

	// Restart closes and reopens parts that the store can miss for a moment. Nil: nothing.
	Restart func()

	// Refuse makes the store refuse every write until heal is called. Nil: it never does.
	Refuse func() (heal func())

	// Check looks for broken invariants of the store itself at the end of a history.
	Check func() error
}

// Death is how much a store knows about a session that was killed.
type Death int

// The kinds of death.
const (
	Unnoticed Death = iota // its leases and places expire
	Skipped                // they expire, but nothing more is handed to it
	AsClosed               // as if it had been closed
)

// Check fails t if it finds a history in which the store differs from the rule. It calls open for
// each history; open uses t.Cleanup to close the store. On average a history has length times as
// many operations as rapid.steps says.
func Check(t *testing.T, length int, open func(t *rapid.T) Store) {
	t.Helper()
	fewHistories()
	rapid.Check(t, func(t *rapid.T) { run(t, length, open(t)) })
}

// Catches fails t unless Check would fail: the store has a mistake that Check must detect. It draws
// far more histories than necessary, and stops at the first that fails. The seed makes them the same
// each time: with some seeds, some mistakes need ten times as many histories as with others.
func Catches(t *testing.T, length, seed int, open func(t *rapid.T) Store) {
	t.Helper()
	for name, value := range map[string]string{"rapid.seed": strconv.Itoa(seed), "rapid.checks": "4000",
		"rapid.shrinktime": "0s", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		old := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Value.Set(old) }()
	}
	if !failing.Run(t, func(t testing.TB) {
		rapid.Check(t, func(t *rapid.T) { run(t, length, open(t)) })
	}) {
		t.Error("the mistake was not detected")
	}
}

// run draws one history.
func run(t *rapid.T, length int, store Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := newWorld(ctx, t, store)
	// Some operations occur more than once, to be drawn more often.
	actions := map[string]func(*rapid.T){
		"":        w.check,
		"acquire": w.acquire, "acquire one more": w.acquire, "acquire another": w.acquire,
		"ask again": w.repeatAcquire, "ask once more": w.repeatAcquire, "renew": w.renew, "renew all": w.renew,
		"release": w.release, "release another": w.release, "cancel": w.cancel,
		"downgrade": w.downgrade, "reduce": w.reduce, "adopt": w.adopt, "break": w.breakGrant, "remove latch": w.removeLatch,
		"set limit":  w.setLimit,
		"make latch": w.setCount, "count down": w.countDown, "await": w.await,
		"list": w.list, "close": w.close, "kill": w.kill,
		"time passes": w.passTime, "pushes get lost": w.losePushes, "repeat": w.repeat,
	}
	if store.Restart != nil {
		actions["restart"] = func(*rapid.T) { store.Restart() }
	}
	if store.Refuse != nil {
		actions["refused"] = w.refused
	}
	for range length {
		t.Repeat(actions)
	}
	for _, c := range w.clients {
		if err := c.Close(ctx); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	if store.Check != nil {
		if err := store.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

var kinds = []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrInvalid}

// kindOf reduces an error to the sentinel of the contract that it wraps.
func kindOf(err error) error {
	for _, s := range kinds {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}
