package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// ends records how waits and leases end.
type ends struct {
	mu     sync.Mutex
	waits  []holdfast.WaitEnd
	leases []holdfast.LeaseEnd
}

func (e *ends) observer() *holdfast.Observer {
	return &holdfast.Observer{
		WaitEnded: func(_ context.Context, w holdfast.WaitEnd) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.waits = append(e.waits, w)
		},
		LeaseEnded: func(l holdfast.LeaseEnd) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.leases = append(e.leases, l)
		},
	}
}

// lines returns a line for each event: "lock x exclusive granted" and "x exclusive released".
func (e *ends) lines() (waits, leases []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.waits {
		waits = append(waits, fmt.Sprintf("%s %s %s %s", w.Op, w.Name, w.Mode, w.Outcome))
	}
	for _, l := range e.leases {
		reason := "released"
		if l.Reason != "" {
			reason = string(l.Reason)
		}
		leases = append(leases, fmt.Sprintf("%s %s %s", l.Name, l.Mode, reason))
	}
	slices.Sort(leases) // those of Close come in any order
	return waits, leases
}

var profileNumber atomic.Int64

func newProfiles() holdfast.Profiles {
	n := profileNumber.Add(1)
	return holdfast.Profiles{Held: pprof.NewProfile(fmt.Sprintf("test.held.%d", n)),
		Waiting: pprof.NewProfile(fmt.Sprintf("test.waiting.%d", n))}
}

// observed is a store with a client that is observed, and another that is not.
type observed struct {
	*testing.T
	ends     ends
	store    drivertest.Conn
	c, other *holdfast.Client
}

// must returns the lease of a call that must succeed.
func (o *observed) must(l *holdfast.Lease, err error) *holdfast.Lease {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
	return l
}

// fails checks the error of a call that must fail.
func (o *observed) fails(want error, _ any, err error) {
	o.Helper()
	if !errors.Is(err, want) {
		o.Errorf("got %v, want %v", err, want)
	}
}

// Each call ends once, with the outcome that its error has; each lease that a call was granted ends
// once. Afterwards the client holds and waits for nothing, by its own account and by its profiles.
func TestEveryWaitAndLeaseEndsOnce(t *testing.T) {
	for _, x := range []struct {
		name          string
		run           func(o *observed)
		waits, leases []string
	}{
		{"Lock and Release", func(o *observed) {
			l := lock(o.T, o.c, "x")
			release(o.T, l)
			o.fails(holdfast.ErrReleased, nil, l.Release())
		}, []string{"lock x exclusive granted"}, []string{"x exclusive released"}},

		{"kinds", func(o *observed) {
			rw := o.c.RWMutex("rw")
			a, b := o.must(rw.RLock(o.Context())), o.must(rw.TryRLock(o.Context()))
			s := o.must(o.c.Semaphore("s", 5).Acquire(o.Context(), 3))
			if err := s.ReleasePermits(1); err != nil {
				o.Error(err)
			}
			for _, l := range []*holdfast.Lease{a, b, s} {
				release(o.T, l)
			}
			w := o.must(rw.Lock(o.Context()))
			if err := w.Downgrade(); err != nil {
				o.Error(err)
			}
			_ = w.ReleaseNow()
			release(o.T, o.must(o.c.Election("e").Campaign(o.Context())))
		}, []string{"read lock rw shared granted", "try read lock rw shared granted", "acquire s permits granted",
			"lock rw exclusive granted", "campaign e exclusive granted"},
			[]string{"e exclusive released", "rw shared released", "rw shared released", "rw shared released",
				"s permits released"}},

		{"gave up", func(o *observed) {
			lock(o.T, o.other, "x")
			_, err := o.c.Mutex("x").TryLock(o.Context())
			o.fails(holdfast.ErrHeld, nil, err)
			_, err = o.c.Mutex("x", holdfast.WaitAtMost(time.Second)).Lock(o.Context())
			o.fails(holdfast.ErrHeld, nil, err)
			_, err = o.c.Mutex("x", holdfast.Poll(time.Second, 3)).Lock(o.Context())
			o.fails(holdfast.ErrHeld, nil, err)
			ctx, cancel := context.WithTimeout(o.Context(), time.Second)
			_, err = o.c.Mutex("x").Lock(ctx)
			o.fails(context.DeadlineExceeded, nil, err)
			_, err = o.c.Mutex("y").Lock(ctx) // it has ended before
			o.fails(context.DeadlineExceeded, nil, err)
			cancel()
			ctx, cancel = context.WithCancel(o.Context())
			time.AfterFunc(time.Second, cancel)
			_, err = o.c.Mutex("x").Lock(ctx)
			o.fails(context.Canceled, nil, err)
		}, []string{"try lock x exclusive held", "lock x exclusive timeout", "lock x exclusive timeout",
			"lock x exclusive timeout", "lock y exclusive timeout", "lock x exclusive canceled"}, nil},

		{"refused", func(o *observed) {
			l := lock(o.T, o.c, "x")
			_, err := o.c.Mutex("x").Lock(l.Context(o.Context()))
			o.fails(holdfast.ErrDeadlock, nil, err)
			_, err = o.c.Semaphore("x", 3).Acquire(o.Context(), 1)
			o.fails(holdfast.ErrKind, nil, err)
			_, err = o.c.Mutex("").Lock(o.Context()) // it is not a call for a lock
			o.fails(holdfast.ErrInvalid, nil, err)
			release(o.T, l)
		}, []string{"lock x exclusive granted", "lock x exclusive refused", "acquire x permits refused"},
			[]string{"x exclusive released"}},

		{"the store is silent", func(o *observed) {
			heal := o.store.Cut()
			_, err := o.c.Mutex("x").Lock(o.Context())
			if !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrUncertain) {
				o.Error(err)
			}
			heal()
		}, []string{"lock x exclusive failed"}, nil},

		{"Close", func(o *observed) {
			lock(o.T, o.other, "x")
			lock(o.T, o.c, "a")
			lock(o.T, o.c, "b")
			done := make(chan struct{})
			go func() { defer close(done); _, _ = o.c.Mutex("x").Lock(o.Context()) }()
			time.Sleep(time.Second)
			_ = o.c.Close(o.Context())
			<-done
			_, err := o.c.Mutex("y").Lock(o.Context())
			o.fails(holdfast.ErrClosed, nil, err)
		}, []string{"lock a exclusive granted", "lock b exclusive granted", "lock x exclusive canceled",
			"lock y exclusive canceled"}, []string{"a exclusive released", "b exclusive released"}},

		{"losses", func(o *observed) {
			short := o.must(o.c.Mutex("short", holdfast.MaxHold(time.Second)).Lock(o.Context()))
			<-short.Done()
			broken := lock(o.T, o.c, "broken")
			if err := breakLock(o.other, "broken", broken.Token()); err != nil {
				o.Error(err)
			}
			<-broken.Done()
			_ = broken.Release()
			cut := lock(o.T, o.c, "cut")
			heal := o.store.Cut()
			<-cut.Done()
			heal()
			_ = cut.Release()
		}, []string{"lock short exclusive granted", "lock broken exclusive granted", "lock cut exclusive granted"},
			[]string{"broken exclusive broken", "cut exclusive unreachable", "short exclusive max hold"}},

		{"a loss that Release reports", func(o *observed) {
			l := lock(o.T, o.c, "x")
			if err := breakLock(o.other, "x", l.Token()); err != nil {
				o.Error(err)
			}
			o.fails(holdfast.ErrLost, nil, l.Release())
		}, []string{"lock x exclusive granted"}, []string{"x exclusive broken"}},

		{"handed off and adopted", func(o *observed) {
			ticket, adopted, err := lock(o.T, o.c, "x").HandOff()
			if err != nil {
				o.Fatal(err)
			}
			l := o.must(o.other.Adopt(o.Context(), ticket))
			<-adopted
			if ticket, _, err = l.HandOff(); err != nil {
				o.Fatal(err)
			}
			release(o.T, o.must(o.c.Adopt(o.Context(), ticket)))
			_, err = o.c.Adopt(o.Context(), ticket)
			o.fails(holdfast.ErrGone, nil, err)
		}, []string{"lock x exclusive granted", "adopt x exclusive granted", "adopt x exclusive refused"},
			[]string{"x exclusive handed off", "x exclusive released"}},

		{"handed off to nobody", func(o *observed) {
			l := lock(o.T, o.c, "x")
			if _, _, err := l.HandOff(); err != nil {
				o.Fatal(err)
			}
			if h := o.c.Health(); h.Held != 0 || h.Offered != 1 {
				o.Errorf("after HandOff: %+v", h)
			}
			release(o.T, l)
		}, []string{"lock x exclusive granted"}, []string{"x exclusive handed off"}},

		{"borrowed", func(o *observed) {
			m := o.c.Mutex("x", holdfast.Reentrant())
			l := o.must(m.Lock(o.Context()))
			release(o.T, o.must(m.Lock(l.Context(o.Context()))))
			short := o.must(o.c.Mutex("x", holdfast.Reentrant(), holdfast.MaxHold(time.Second)).Lock(l.Context(o.Context())))
			if held := o.c.Held(); len(held) != 1 {
				o.Errorf("a borrowed lease counts: %+v", held)
			}
			<-short.Done()
			_ = o.must(m.Lock(l.Context(o.Context())))
			release(o.T, l) // ends the last one, too
		}, []string{"lock x exclusive granted"}, []string{"x exclusive released"}},

		{"LockAll", func(o *observed) {
			held := lock(o.T, o.other, "b")
			time.AfterFunc(3*time.Second, func() { _ = held.Release() })
			m, err := holdfast.LockAll(o.Context(), o.c.Mutex("a"), o.c.Mutex("b"))
			if err != nil {
				o.Fatal(err)
			}
			_ = m.Release()
			lock(o.T, o.other, "d")
			_, err = holdfast.TryLockAll(o.Context(), o.c.Mutex("c"), o.c.Mutex("d"))
			o.fails(holdfast.ErrHeld, nil, err)
		}, []string{"lock a exclusive granted", "lock b exclusive granted", "lock a exclusive granted",
			"try lock c exclusive granted", "try lock d exclusive held"},
			[]string{"a exclusive released", "a exclusive released", "b exclusive released", "c exclusive released"}},

		{"candidacy", func(o *observed) {
			y, err := o.c.Election("e").Stand(o.Context())
			if err != nil {
				o.Fatal(err)
			}
			synctest.Wait()
			if err := breakLock(o.other, "e", y.Lease().Token()); err != nil {
				o.Error(err)
			}
			time.Sleep(ttl)
			if err := y.Stop(); err != nil {
				o.Error(err)
			}
		}, []string{"campaign e exclusive granted", "campaign e exclusive granted"},
			[]string{"e exclusive broken", "e exclusive released"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				o := &observed{T: t, store: drivertest.Faulty(store), other: client(t, store, nil)}
				profiles := newProfiles()
				o.c = client(t, o.store, &holdfast.Config{Observer: o.ends.observer(), Profiles: profiles})
				x.run(o)
				synctest.Wait()
				waits, leases := o.ends.lines()
				if !slices.Equal(waits, x.waits) {
					t.Errorf("waits ended:\n%s\nwant:\n%s", strings.Join(waits, "\n"), strings.Join(x.waits, "\n"))
				}
				if !slices.Equal(leases, x.leases) {
					t.Errorf("leases ended:\n%s\nwant:\n%s", strings.Join(leases, "\n"), strings.Join(x.leases, "\n"))
				}
				nothingLeft(t, o.c, profiles)
			})
		})
	}
}

// nothingLeft checks that c holds and waits for nothing.
func nothingLeft(t *testing.T, c *holdfast.Client, p holdfast.Profiles) {
	t.Helper()
	h := c.Health()
	if held, wanted := c.Held(), c.Wanted(); len(held)+len(wanted)+h.Held+h.Waiting+h.Offered != 0 {
		t.Errorf("at the end: held %+v, wanted %+v, %+v", held, wanted, h)
	}
	if held, waiting := p.Held.Count(), p.Waiting.Count(); held+waiting != 0 {
		t.Errorf("at the end the profiles have %d that hold and %d that wait", held, waiting)
	}
}

func breakLock(c *holdfast.Client, name string, token uint64) error {
	return c.Break(context.Background(), name, token, "")
}
