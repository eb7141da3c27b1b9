package holdfast_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// From the hand-off until long after the adoption nobody else gets the lock, the giver does not
// hold it, and nothing that the giver does ends the grant.
func TestHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver, taker, other := client(t, store, nil), client(t, store, &holdfast.Config{Program: "taker"}), client(t, store,
			nil)
		takes := map[string]func() (*holdfast.Lease, error){
			"mutex":     func() (*holdfast.Lease, error) { return giver.Mutex("mutex").Lock(t.Context()) },
			"read":      func() (*holdfast.Lease, error) { return giver.RWMutex("read").RLock(t.Context()) },
			"semaphore": func() (*holdfast.Lease, error) { return giver.Semaphore("semaphore", 3).Acquire(t.Context(), 2) },
		}
		for name, f := range takes {
			l := take(t)(f())
			work := l.Context(t.Context())
			busy := func() {
				t.Helper()
				var err error
				if name == "semaphore" {
					_, err = other.Semaphore(name, 3).TryAcquire(t.Context(), 2)
				} else {
					_, err = other.Mutex(name).TryLock(t.Context())
				}
				if !errors.Is(err, holdfast.ErrHeld) {
					t.Fatalf("%s, for another: %v", name, err)
				}
			}
			ticket, adopted, err := l.HandOff()
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(l.Err(), holdfast.ErrReleased) || !errors.Is(context.Cause(work), holdfast.ErrReleased) {
				t.Errorf("the giver's lease after HandOff: %v", l.Err())
			}
			for range 10 {
				time.Sleep(ttl)
				busy()
			}
			select {
			case <-adopted:
				t.Error("adopted by nobody")
			default:
			}
			got := take(t)(taker.Adopt(t.Context(), ticket))
			if got.Token() != l.Token() || got.Name() != l.Name() {
				t.Errorf("adopted %s %d; want %s %d", got.Name(), got.Token(), l.Name(), l.Token())
			}
			r, err := other.Inspect(t.Context(), name)
			if err != nil || len(r.Holders) != 1 || r.Holders[0].Program != "taker" || r.Holders[0].Token != got.Token() {
				t.Errorf("the record after the adoption: %+v, %v", r, err)
			}
			within(t, "the notice of the adoption", 0, ttl/3, func() { <-adopted })
			refused(t, holdfast.ErrGone)(other.Adopt(t.Context(), ticket))
			if err := l.Release(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("the giver's Release: %v", err)
			}
			busy()
			if _, _, err := l.HandOff(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("a second HandOff: %v", err)
			}
			defer release(t, got)
		}
		if err := giver.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * ttl)
		refused(t, holdfast.ErrHeld)(other.Mutex("mutex").TryLock(t.Context()))
	})
}

// Before the adoption, Release and Close of the giver end the offer.
func TestReleaseOfAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver, other := client(t, store, nil), client(t, store, nil)
		l := lock(t, giver, "x")
		ticket, adopted, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		release(t, l)
		<-adopted
		refused(t, holdfast.ErrGone)(other.Adopt(t.Context(), ticket))
		if _, err := other.Adopt(t.Context(), ticket); !strings.HasSuffix(err.Error(), "or somebody has adopted it before") {
			t.Errorf("Adopt of an offer that was released: %v", err)
		}
		release(t, take(t)(other.Mutex("x").TryLock(t.Context())))

		if _, _, err = lock(t, giver, "x").HandOff(); err != nil {
			t.Fatal(err)
		}
		if err := giver.Close(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, take(t)(other.Mutex("x").TryLock(t.Context())))

		m := other.Mutex("x", holdfast.Reentrant())
		outer := take(t)(m.Lock(t.Context()))
		inner := take(t)(m.Lock(outer.Context(t.Context())))
		if _, _, err := inner.HandOff(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("HandOff of a borrowed lease: %v", err)
		}
		if _, _, err := outer.HandOff(); err != nil || !errors.Is(inner.Err(), holdfast.ErrReleased) {
			t.Errorf("after HandOff of the outer lease: %v, %v", err, inner.Err())
		}
		release(t, outer)
	})
}

// A lost answer neither loses the lock nor grants it twice.
func TestAdoptInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		giver, taker := client(t, store, nil), client(t, conn, nil)
		ticket, _, err := lock(t, giver, "x").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		heal := conn.DropReplies()
		got := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return taker.Adopt(ctx, ticket) })
		time.Sleep(ttl / 5)
		heal()
		release(t, <-got)
		release(t, take(t)(giver.Mutex("x").TryLock(t.Context())))

		if ticket, _, err = lock(t, giver, "x").HandOff(); err != nil {
			t.Fatal(err)
		}
		heal = conn.DropReplies()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refused(t, context.DeadlineExceeded)(taker.Adopt(ctx, ticket))
		heal()
		within(t, "the end of a grant that was adopted by who had given up", 0, ttl, func() {
			release(t, lock(t, giver, "x"))
		})
	})
}

func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		ticket, _, err := lock(t, c, "x").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"", "x", ticket[:len(ticket)-5], ticket[1:], "holdfast2.",
			"holdfast2." + base64.RawURLEncoding.EncodeToString([]byte("{}"))} {
			refused(t, holdfast.ErrInvalid)(c.Adopt(t.Context(), s))
		}
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(ticket, "holdfast2."))
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := strings.Replace(string(b), `"memory"`, `"redis"`, 1)
		refused(t, holdfast.ErrInvalid)(c.Adopt(t.Context(),
			"holdfast2."+base64.RawURLEncoding.EncodeToString([]byte(elsewhere))))
		refused(t, holdfast.ErrInvalid)(c.Adopt(t.Context(), ticket, holdfast.MaxHold(-1)))
		refused(t, holdfast.ErrGone)(client(t, memlock.New(), nil).Adopt(t.Context(), ticket))
		l := take(t)(c.Adopt(t.Context(), ticket, holdfast.MaxHold(time.Minute)))
		time.Sleep(time.Minute)
		isLost(t, l.Err(), holdfast.ReasonMaxHold)
	})
}

// Adopt reports a store that is too slow for its TTL, and releases what the store may have done.
func TestAdoptFromASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver := client(t, store, nil)
		var slow atomic.Bool
		h := &hooks{Backend: store, adopt: func(next func() error) error {
			if slow.Load() {
				defer time.Sleep(ttl / 2)
			}
			return next()
		}}
		taker := client(t, h, &holdfast.Config{TTL: ttl})
		slow.Store(true)
		ticket, _, err := lock(t, giver, "x").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		within(t, "Adopt", ttl, 2*ttl, func() {
			refused(t, holdfast.ErrUnavailable)(taker.Adopt(t.Context(), ticket))
		})
		time.Sleep(time.Second)
		release(t, take(t)(giver.Mutex("x").TryLock(t.Context())))
	})
}

// edited returns a ticket in which a field has another value.
func edited(t *testing.T, ticket, field string, value any) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(ticket, "holdfast2."))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	fields[field] = value
	if b, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return "holdfast2." + base64.RawURLEncoding.EncodeToString(b)
}

// Adopt gets what the store has on record, whatever an edited ticket contains.
func TestEditedTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver, taker := client(t, store, nil), client(t, store, nil)
		ticket, _, err := take(t)(giver.RWMutex("x").RLock(t.Context())).HandOff()
		if err != nil {
			t.Fatal(err)
		}
		l := take(t)(taker.Adopt(t.Context(), edited(t, ticket, "mode", driver.Exclusive)))
		m := taker.RWMutex("x", holdfast.Reentrant())
		refused(t, holdfast.ErrUpgrade)(m.Lock(l.Context(t.Context())))
		release(t, take(t)(m.RLock(l.Context(t.Context()))))
		release(t, l)

		ticket, _, err = take(t)(giver.Semaphore("s", 9).Acquire(t.Context(), 2)).HandOff()
		if err != nil {
			t.Fatal(err)
		}
		l = take(t)(taker.Adopt(t.Context(), edited(t, ticket, "n", 8)))
		s := taker.Semaphore("s", 9, holdfast.Reentrant())
		release(t, take(t)(s.Acquire(l.Context(t.Context()), 2)))
		refused(t, holdfast.ErrDeadlock)(s.Acquire(l.Context(t.Context()), 8))
		release(t, l)
	})
}

// HandOff during Downgrade: the adopter has the mode that the store has, and Downgrade of a lease
// that was handed off changes nothing.
func TestHandOffDuringDowngrade(t *testing.T) {
	store := memlock.New()
	giver, taker := client(t, store, nil), client(t, store, nil)
	for range 1000 {
		l := take(t)(giver.RWMutex("x").Lock(t.Context()))
		down := make(chan error)
		go func() { down <- l.Downgrade() }()
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		got := take(t)(taker.Adopt(t.Context(), ticket))
		err = <-down
		if err != nil && !errors.Is(err, holdfast.ErrReleased) {
			t.Fatalf("Downgrade: %v", err)
		}
		r, err := giver.Inspect(t.Context(), "x")
		if err != nil || len(r.Holders) != 1 {
			t.Fatalf("the record: %+v, %v", r, err)
		}
		w, err := taker.RWMutex("x", holdfast.Reentrant()).Lock(got.Context(t.Context()))
		if err == nil == r.Holders[0].Shared {
			t.Fatalf("the store has shared: %t; a write lease: %v, %v", r.Holders[0].Shared, w, err)
		}
		release(t, got)
	}
	l := take(t)(giver.RWMutex("x").Lock(t.Context()))
	if _, _, err := l.HandOff(); err != nil {
		t.Fatal(err)
	}
	if err := l.Downgrade(); !errors.Is(err, holdfast.ErrReleased) {
		t.Errorf("Downgrade after HandOff: %v", err)
	}
}

// The lease is handed off before its Downgrade is answered, and the store has recorded both: the taker gets
// a lease for reading.
func TestHandOffOfADowngradedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		recorded, answer := make(chan struct{}), make(chan struct{})
		h := &hooks{Backend: store, down: func(next func() error) error {
			err := next()
			close(recorded)
			<-answer
			return err
		}}
		giver, taker := client(t, h, nil), client(t, store, nil)
		l := take(t)(giver.RWMutex("x").Lock(t.Context()))
		down := make(chan error)
		go func() { down <- l.Downgrade() }()
		<-recorded
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		got := take(t)(taker.Adopt(t.Context(), ticket))
		if w, err := taker.RWMutex("x", holdfast.Reentrant()).Lock(got.Context(t.Context())); err == nil {
			t.Errorf("a lease for reading lends one for writing: %v", w)
		}
		release(t, take(t)(taker.RWMutex("x").RLock(t.Context())))
		close(answer)
		if err := <-down; err != nil && !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Downgrade: %v", err)
		}
		release(t, got)
	})
}

// A grant that the store does not show is not adopted.
func TestAdoptOfAMissingGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver := client(t, store, nil)
		ticket, _, err := lock(t, giver, "x").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		h := &hooks{Backend: store, adopt: func(func() error) error { return nil }}
		refused(t, holdfast.ErrGone)(client(t, h, nil).Adopt(t.Context(), ticket))
	})
}

func FuzzAdopt(f *testing.F) {
	store := memlock.New()
	c, err := holdfast.New(context.Background(), store, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close(context.Background()) })
	f.Add(`{"store":"memory","name":"x","id":"a-1","token":"1","mode":1,"n":1}`)
	f.Add(`{"store":"memory","name":"x","id":"a-1","token":"1","mode":3,"n":2,"limit":2}`)
	f.Add(`{"store":"memory","name":"x","id":"a-1","token":"-1","mode":9}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range []string{text, "holdfast2." + text,
			"holdfast2." + base64.RawURLEncoding.EncodeToString([]byte(text))} {
			_, err := c.Adopt(context.Background(), s)
			if !errors.Is(err, holdfast.ErrInvalid) && !errors.Is(err, holdfast.ErrGone) {
				t.Errorf("Adopt(%q): %v", s, err)
			}
		}
	})
}
