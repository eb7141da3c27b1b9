package holdfast

import (
	"context"
	"testing"
	"testing/synctest"
)

// A lease forgets the contexts that have asked for requests and have ended, and tells the others.
func TestRevokedForgetsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := sleeper(t)
		l := mutex(t, c, t.Context())
		stays := Revoked(l.Context(t.Context()))
		inner := mutex(t, c, l.Context(t.Context()), Reentrant())
		for _, of := range []*Lease{l, inner} {
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if Revoked(of.Context(ctx)) == nil {
					t.Error("no channel")
				}
				cancel()
			}
		}
		synctest.Wait()
		c.mu.Lock()
		n, within := len(l.onRevoke), len(inner.onRevoke)
		c.mu.Unlock()
		if n != 1 || within != 0 {
			t.Errorf("the lease has %d contexts, the borrowed one %d; want 1 and 0", n, within)
		}
		if err := c.Revoke(t.Context(), "x", l.Token(), ""); err != nil {
			t.Fatal(err)
		}
		<-stays
	})
}
