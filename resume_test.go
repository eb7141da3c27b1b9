package holdfast_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A lease is taken up again by its ticket, once for each ticket, as long as the store has the grant.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h, silence := silent(store)
		first, second := client(t, h, nil), client(t, store, nil)
		l := lock(t, first, "x")
		ticket, err := l.Ticket()
		if err != nil {
			t.Fatal(err)
		}
		silence.Store(true) // it has crashed
		got := take(t)(second.Resume(t.Context(), ticket))
		if got.Token() != l.Token() || got.Name() != "x" {
			t.Errorf("resumed %s %d; want x %d", got.Name(), got.Token(), l.Token())
		}
		silence.Store(false)
		within(t, "the loss of the earlier holder", 0, ttl, func() { <-l.Done() })
		isLost(t, l.Err(), holdfast.ReasonEnded)
		refused(t, holdfast.ErrGone)(second.Resume(t.Context(), ticket))
		if _, err := l.Ticket(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Ticket of the lost lease: %v", err)
		}

		// The next process needs the next ticket.
		next, err := got.Ticket()
		if err != nil || next == ticket {
			t.Fatalf("the ticket of a resumed lease: %q, %v", next, err)
		}
		last := take(t)(first.Resume(t.Context(), next))
		time.Sleep(3 * ttl)
		if err := last.Err(); err != nil {
			t.Error(err)
		}
		old, err := last.Ticket()
		if err != nil {
			t.Fatal(err)
		}
		release(t, last)
		refused(t, holdfast.ErrGone)(second.Resume(t.Context(), old))

		// After a TTL without a renewal the grant has ended.
		l = lock(t, first, "x")
		if ticket, err = l.Ticket(); err != nil {
			t.Fatal(err)
		}
		silence.Store(true)
		time.Sleep(2 * ttl)
		refused(t, holdfast.ErrGone)(second.Resume(t.Context(), ticket))
		silence.Store(false)
	})
}

func TestTicketRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		outer := lock(t, c, "x")
		inner := take(t)(c.Mutex("x", holdfast.Reentrant()).Lock(outer.Context(t.Context())))
		if _, err := inner.Ticket(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Ticket of a borrowed lease: %v", err)
		}
		ticket, err := outer.Ticket()
		if err != nil {
			t.Fatal(err)
		}
		for _, edited := range []string{"", "x", ticket[:len(ticket)-2], strings.ToUpper(ticket), ticket + "A"} {
			_, err := c.Resume(t.Context(), edited)
			if !errors.Is(err, holdfast.ErrInvalid) && !errors.Is(err, holdfast.ErrGone) {
				t.Errorf("Resume(%q): %v", edited, err)
			}
		}
		if err := outer.Err(); err != nil {
			t.Errorf("after edited tickets: %v", err)
		}
		release(t, outer)
		if _, err := outer.Ticket(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Ticket of a released lease: %v", err)
		}
		var none *holdfast.Lease
		if _, err := none.Ticket(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Ticket of no lease: %v", err)
		}
	})
}
