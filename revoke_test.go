package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
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
