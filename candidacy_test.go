package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h, silence := silent(store)
		stand := func(c *holdfast.Client) *holdfast.Candidacy {
			t.Helper()
			y, err := c.Election("api").Stand(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return y
		}
		leads := func(what string, y *holdfast.Candidacy, want bool) {
			t.Helper()
			if y.IsLeader() != want || (y.Lease() != nil) != want {
				t.Errorf("%s: leads: %v; want %v", what, y.IsLeader(), want)
			}
		}
		a := stand(client(t, h, nil))
		b := stand(client(t, store, nil))
		leads("the first", a, true)
		leads("the second", b, false)

		// a is cut off: it stops leading before b begins, and campaigns again afterwards.
		term := a.Lease().Token()
		silence.Store(true)
		for !b.IsLeader() {
			time.Sleep(10 * time.Millisecond)
			if b.IsLeader() {
				leads("the first, cut off", a, false)
			}
		}
		if b.Lease().Token() <= term {
			t.Errorf("term %d after %d", b.Lease().Token(), term)
		}
		silence.Store(false)
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		leads("the second, after Stop", b, false)
		within(t, "the first leads again", 0, 2*time.Second, func() {
			for !a.IsLeader() {
				time.Sleep(10 * time.Millisecond)
			}
		})

		// An operator ends the leadership. The candidate learns that, and campaigns again.
		term = a.Lease().Token()
		if err := client(t, store, nil).Break(t.Context(), "api", term, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if l := a.Lease(); l == nil || l.Token() <= term {
			t.Errorf("after Break of term %d: %v", term, l)
		}
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
		<-a.Done()
		release(t, lock(t, client(t, store, nil), "api"))
	})
}

// The candidacy ends with its client, and is refused by one that is closed.
func TestStandOfAClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		held := lock(t, client(t, store, nil), "api")
		c := client(t, store, nil)
		y, err := c.Election("api").Stand(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		<-y.Done()
		if err := y.Stop(); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Stop: %v; want ErrClosed", err)
		}
		if _, err := c.Election("api").Stand(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Stand: %v; want ErrClosed", err)
		}
		release(t, held)

		c = client(t, store, nil)
		if y, err = c.Election("api").Stand(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		leader := y.Lease()
		if err := c.Close(t.Context()); err != nil || y.IsLeader() {
			t.Errorf("Close of the leader's client: %v; it leads: %v", err, y.IsLeader())
		}
		<-y.Done()
		if err := leader.Err(); err == nil {
			t.Error("the leader's lease is valid after Close")
		}
		release(t, lock(t, client(t, store, nil), "api"))
	})
}
