// Package modeltest compares a store with package rule, step by step, over random histories
// of everything that clients, operators, time and faults can do. The test moves the
// clock, so leases end to the microsecond. What fails is shrunk to a short history.
//
// After each operation the answers, the tokens, the hand-overs and the records of all names
// must be those of the rule; and the records must make sense by themselves, since memlock
// is the rule.
package modeltest

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/failing"
)

// Store is an empty store under test, and the ways to hurt it. Only Backend and Pass are needed.
type Store struct {
	Backend driver.Backend

	// Pass moves the store's clock on, and the clock of its driver with it.
	Pass func(d time.Duration)

	// Settle returns when all that was pushed so far has arrived. Nil: it has at once.
	Settle func()

	// Lose lets what is pushed to a session get lost, until it is called again with false.
	// Nil: what arrives is not looked at.
	Lose func(session string, lost bool)

	// Drop lets requests be carried out and their answers get lost, until it is called
	// again with false. Nil: the answers are not looked at.
	Drop func(lost bool)

	// Kill does to a session what the end of its process would, and returns when the
	// store knows all it will ever know of it. Nil: the session only falls silent.
	Kill func(session string)

	// Silent says that a request that joins the line may not be told who is in its way.
	Silent bool

	// Death is what the store makes of a session that was killed.
	Death Death

	// Restart closes and opens what the store can do without for a moment. Nil: nothing.
	Restart func()

	// Refuse has the store refuse every write until heal is called. Nil: it never does.
	Refuse func() (heal func())

	// Check looks for broken invariants of the store's own when a history has ended.
	Check func() error
}

// Death is how much a store knows of a session that was killed.
type Death int

// The kinds of death.
const (
	Unnoticed Death = iota // its leases and places run out
	Skipped                // so they do, but nothing is handed to it any more
	Buried                 // as if it had been closed
)

// Check fails t if a history can be found in which the store does other than the rule. open is
// called for each history; what it opens it closes by t.Cleanup. A history has length times as
// many operations as rapid.steps says, on average.
func Check(t *testing.T, length int, open func(t *rapid.T) Store) {
	t.Helper()
	few()
	rapid.Check(t, func(t *rapid.T) { run(t, length, open(t)) })
}

// Catches fails t unless Check would fail: the store has a mistake that must be noticed. It draws far more histories than
// that takes, and stops at the first. They are the same each time: of those that are drawn anew, some runs need ten times
// as many as others.
func Catches(t *testing.T, length int, open func(t *rapid.T) Store) {
	t.Helper()
	for name, value := range map[string]string{"rapid.seed": "8", "rapid.checks": "4000", "rapid.shrinktime": "0s", "rapid.nofailfile": "true"} {
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
		t.Error("not noticed")
	}
}

// run draws one history.
func run(t *rapid.T, length int, store Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := newWorld(ctx, t, store)
	// Some operations are there more than once: they are wanted more often.
	actions := map[string]func(*rapid.T){
		"":        w.check,
		"acquire": w.acquire, "acquire one more": w.acquire, "acquire another": w.acquire,
		"ask again": w.again, "ask once more": w.again, "renew": w.renew, "renew all": w.renew,
		"release": w.release, "release another": w.release, "cancel": w.cancel,
		"downgrade": w.downgrade, "adopt": w.adopt, "break": w.breaks, "set limit": w.setLimit,
		"make latch": w.setCount, "count down": w.countDown, "await": w.await,
		"list": w.list, "close": w.close, "kill": w.kill,
		"time passes": w.pass, "pushes get lost": w.lose, "repeat": w.repeat,
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
