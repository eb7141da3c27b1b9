package backoff

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	p := Pause{First: 10 * time.Millisecond, Most: 50 * time.Millisecond}
	next := func(n int) (list []time.Duration) {
		for range n {
			list = append(list, p.Next()/time.Millisecond)
		}
		return list
	}
	if got := next(5); !slices.Equal(got, []time.Duration{10, 20, 40, 50, 50}) {
		t.Errorf("pauses of %d ms", got)
	}
	p.Reset()
	if got := next(2); !slices.Equal(got, []time.Duration{10, 20}) {
		t.Errorf("after Reset, pauses of %d ms", got)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		p, begun := Pause{First: 10 * time.Millisecond, Most: time.Second}, time.Now()
		if !p.Wait(ctx) || time.Since(begun) != 10*time.Millisecond {
			t.Errorf("the first pause ended after %v", time.Since(begun))
		}
		if p.Wait(ctx) || time.Since(begun) != 25*time.Millisecond {
			t.Errorf("the context ended after 25 ms, Wait after %v", time.Since(begun))
		}
	})
}
