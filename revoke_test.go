package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A holder learns of a request within a third of its TTL, and goes on until it releases.
func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		told := make(chan holdfast.Notice, 2)
		c := client(t, store, &holdfast.Config{TTL: ttl, Observer: &holdfast.Observer{
			Revoked: func(_ string, _ uint64, n holdfast.Notice) { told <- n },
		}})
		operator := client(t, store, &holdfast.Config{TTL: ttl, Program: "ops"})
		l, other := lock(t, c, "x"), lock(t, c, "y")
		outer := l.Context(t.Context())
		both := other.Context(outer) // carries both leases
		inner := take(t)(c.Mutex("x", holdfast.Reentrant()).Lock(outer))
		channels := []<-chan struct{}{holdfast.Revoked(outer), holdfast.Revoked(both),
			holdfast.Revoked(inner.Context(t.Context()))}
		alone := holdfast.Revoked(other.Context(t.Context()))
		if err := operator.Revoke(t.Context(), "x", l.Token(), "deploying"); err != nil {
			t.Fatal(err)
		}
		for i, ch := range channels {
			within(t, "the request", 0, ttl/3+time.Millisecond, func() { <-ch })
			if n := holdfast.Revocation([]context.Context{outer, both, inner.Context(t.Context())}[i]); n == nil ||
				n.Reason != "deploying" || n.By.Program != "ops" {
				t.Errorf("Revocation %d = %+v", i, n)
			}
		}
		select {
		case <-alone:
			t.Error("the holder of another name was asked")
		default:
		}
		if n := <-told; n.Reason != "deploying" {
			t.Errorf("the Observer has %+v", n)
		}
		time.Sleep(5 * ttl)
		if err := l.Err(); err != nil || outer.Err() != nil {
			t.Errorf("the lease has ended: %v", err)
		}
		if len(told) > 0 {
			t.Error("told twice")
		}
		<-holdfast.Revoked(l.Context(t.Context())) // a context that is made later knows, too
		late := take(t)(c.Mutex("x", holdfast.Reentrant()).Lock(outer))
		if late.Revocation() == nil {
			t.Error("a lease borrowed later does not know")
		}
		if err := errors.Join(late.Release(), inner.Release(), l.Release()); err != nil {
			t.Fatal(err)
		}
		if err := operator.Revoke(t.Context(), "x", l.Token(), ""); !errors.Is(err, holdfast.ErrGone) {
			t.Errorf("Revoke of a released grant: %v; want ErrGone", err)
		}
		next := lock(t, c, "x") // the request was for the grant, not for the name
		time.Sleep(ttl)
		if n := next.Revocation(); n != nil {
			t.Errorf("the next holder was asked: %+v", n)
		}
		sameEvents(t, events(t, c, "x"), fmt.Sprint("asked ", l.Token(), " deploying"))
	})
}

func TestRevokedWithoutALease(t *testing.T) {
	if ch := holdfast.Revoked(t.Context()); ch != nil {
		t.Error("a channel without a lease")
	}
	if n := holdfast.Revocation(t.Context()); n != nil {
		t.Errorf("%+v", n)
	}
}

// The holder of a broken grant learns who broke it, and why.
func TestBreakHasAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		log := &logLines{}
		lost := make(chan holdfast.Reason, 1)
		c := client(t, store, &holdfast.Config{TTL: ttl, Logger: log.logger(), Observer: &holdfast.Observer{
			Lost: func(_ string, _ uint64, reason holdfast.Reason) { lost <- reason },
		}})
		operator := client(t, store, &holdfast.Config{TTL: ttl, Program: "ops"})
		err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			if err := operator.Break(t.Context(), "x", holdfast.Token(ctx), "it hangs"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return nil
		})
		isLost(t, err, holdfast.ReasonBroken)
		var e *holdfast.Error
		if !errors.As(err, &e) || e.Notice == nil || e.Notice.Reason != "it hangs" || e.Notice.By.Program != "ops" {
			t.Errorf("%v, notice %+v", err, e.Notice)
		}
		if reason := <-lost; reason != holdfast.ReasonBroken {
			t.Errorf("the Observer has %q", reason)
		}
		synctest.Wait()
		if log.count("it hangs") != 1 {
			t.Error("the log does not have the reason")
		}
	})
}

// Each method of a lease that was broken says by whom and why, and so does a lease borrowed from it.
// The holder may read the history before the operator has added its notice.
func TestBreakReachesEachError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		late := &hooks{Backend: store}
		late.history = func(ctx context.Context) error { time.Sleep(10 * time.Millisecond); return nil }
		c, operator := client(t, store, nil), client(t, late, nil)
		hasNotice := func(what string, err error) {
			t.Helper()
			isLost(t, err, holdfast.ReasonBroken)
			var e *holdfast.Error
			if !errors.As(err, &e) || e.Notice == nil || e.Notice.Reason != "<why>" {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, call := range map[string]func(*holdfast.Lease) error{
			"extend":    func(l *holdfast.Lease) error { return l.Extend(time.Minute) },
			"downgrade": (*holdfast.Lease).Downgrade,
			"release":   (*holdfast.Lease).Release,
		} {
			l := take(t)(c.RWMutex(what, holdfast.MaxHold(time.Hour)).Lock(t.Context()))
			outer := l.Context(t.Context())
			inner := take(t)(c.RWMutex(what, holdfast.Reentrant()).RLock(outer))
			late.history = func(ctx context.Context) error { // the notice comes late
				time.Sleep(10 * time.Millisecond)
				late.history = nil
				return fmt.Errorf("%w: again", driver.ErrUncertain)
			}
			go func() {
				if err := operator.Break(t.Context(), what, l.Token(), "<why>"); err != nil {
					t.Error(err)
				}
			}()
			if what == "downgrade" { // it refuses while a reader is borrowed
				_ = inner.Release()
			}
			synctest.Wait()
			hasNotice(what, call(l))
			if what == "extend" {
				hasNotice("a borrowed lease", inner.Why())
				hasNotice("the release of a borrowed lease", inner.Release())
			}
		}
	})
}

// Words that are allowed are kept, whatever characters they have; others are refused before anything
// is done.
func TestReasonsFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		for text, fits := range map[string]bool{strings.Repeat("<&>\"", 256): true, strings.Repeat("\x01", 1024): false} {
			l := lock(t, c, "x")
			err := c.Revoke(t.Context(), "x", l.Token(), text)
			if errors.Is(err, holdfast.ErrInvalid) == fits || fits && err != nil {
				t.Errorf("Revoke with %.4q…: %v", text, err)
			}
			err = c.Break(t.Context(), "x", l.Token(), text)
			if errors.Is(err, holdfast.ErrInvalid) == fits || fits && err != nil {
				t.Errorf("Break with %.4q…: %v", text, err)
			}
			if err := l.Release(); (err != nil) != fits {
				t.Errorf("Release: %v", err)
			}
		}
	})
}

// What another program writes into a history cannot look like a line of ours.
func TestForeignEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		for _, text := range []string{`{"event":"broken\u001b[2J\ngranted","token":"7"}`, `{"event":7}`, `nonsense`, `{}`} {
			if err := store.AddHistory(t.Context(), "x", text, 10); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := c.History(t.Context(), "x")
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		if text := entries[0].String(); strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%q", text)
		}
	})
}
