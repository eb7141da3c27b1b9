package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil).Latch("l"), client(t, store, nil).Latch("l")
		if _, err := a.CountDown(t.Context(), ""); !errors.Is(err, holdfast.ErrGone) {
			t.Errorf("CountDown without a latch: %v", err)
		}
		if err := a.Wait(t.Context()); !errors.Is(err, holdfast.ErrGone) {
			t.Errorf("Wait without a latch: %v", err)
		}
		for i, l := range []*holdfast.Latch{a, b} {
			if created, err := l.Set(t.Context(), 3); err != nil || created != (i == 0) {
				t.Errorf("Set: %v, %v", created, err)
			}
		}
		var through sync.WaitGroup
		for _, l := range []*holdfast.Latch{a, b, b} {
			through.Go(func() {
				if err := l.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		start := time.Now()
		time.Sleep(10 * ttl)
		for i, id := range []string{"job-1", "job-1", "", "", ""} {
			left, err := b.CountDown(t.Context(), id)
			if want := []int64{2, 2, 1, 0, 0}[i]; err != nil || left != want {
				t.Errorf("CountDown(%q): %d, %v; want %d", id, left, err, want)
			}
		}
		through.Wait()
		if d := time.Since(start); d > 10*ttl+time.Second {
			t.Errorf("let through %v after zero", d-10*ttl)
		}
		if err := a.Wait(t.Context()); err != nil {
			t.Errorf("Wait at zero: %v", err)
		}
		if _, err := a.Set(t.Context(), -1); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Set(-1): %v", err)
		}
		if _, err := a.CountDown(t.Context(), strings.Repeat("x", 513)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a long id: %v", err)
		}
	})
}

// Wait ends with its context and its client. It notices a change although the push was lost.
func TestLatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		far, near := client(t, conn, nil), client(t, store, nil)
		if _, err := near.Latch("l").Set(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		within(t, "Wait", time.Second, time.Second, func() {
			if err := near.Latch("l").Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Wait: %v", err)
			}
		})
		closed, done := client(t, store, nil), make(chan error)
		go func() { done <- closed.Latch("l").Wait(t.Context()) }()
		synctest.Wait()
		if err := closed.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Wait of a client that was closed: %v", err)
		}
		go func() { done <- far.Latch("l").Wait(t.Context()) }()
		synctest.Wait()
		heal := conn.Cut() // the push is lost
		if _, err := near.Latch("l").CountDown(t.Context(), ""); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		heal()
		within(t, "Wait, after a lost push", 0, ttl/3, func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		conn.Cut()
		within(t, "CountDown in an outage", ttl, 2*ttl, func() {
			if _, err := far.Latch("l").CountDown(t.Context(), "x"); !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("CountDown in an outage: %v", err)
			}
		})
	})
}
