package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// In these tests nobody has run the job, and a grant that nobody uses is in the way. OnlyOne must not say that another
// has run it.

// tick calls OnlyOne for an hourly job.
func tick(t *testing.T, c *holdfast.Client, opts ...holdfast.Option) (ran bool, err error) {
	t.Helper()
	if ran, err = c.OnlyOne(t.Context(), "job", time.Hour, nothing, opts...); !ran && err == nil {
		t.Error("nobody has run the job, and OnlyOne says that another has")
	}
	return ran, err
}

// A grant is told so late that it has to be confirmed. A majority of the servers is away then, and the request spent.
func TestOnlyOneAfterASpentConfirmation(t *testing.T) {
	for what, away := range map[string]time.Duration{"the same call": 0, "the next call": 2 * time.Second} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, begun := 0, time.Now()
				c := client(t, &hooks{Backend: memlock.New(), acquire: func(_ context.Context, _ *driver.Request,
					next func() (driver.Reply, error)) (driver.Reply, error) {
					asked++
					switch {
					case asked == 1:
						reply, err := next()
						reply.Stale = ttl / 2
						return reply, err
					case asked == 2:
						return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
					case time.Since(begun) < away:
						return driver.Reply{}, driver.ErrUnavailable
					}
					return next()
				}}, nil)
				ran, err := tick(t, c)
				if away == 0 {
					if !ran || err != nil {
						t.Errorf("%v, %v; want a run after the cancellation", ran, err)
					}
					return
				}
				time.Sleep(2 * ttl) // the lease ends
				tick(t, c)
			})
		})
	}
}

// The session ends during the first exchange. The store has granted the request, and the minimum hold outlives the
// session.
func TestOnlyOneAfterASessionThatEnded(t *testing.T) {
	for what, down := range map[string]time.Duration{"replaced at once": 0, "replaced later": time.Second} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lost chan struct{}
				var until time.Time
				first := true
				c := client(t, &hooks{
					Backend: memlock.New(),
					open:    func() <-chan struct{} { lost = make(chan struct{}); return lost },
					opening: func(context.Context) error {
						if time.Now().Before(until) {
							return driver.ErrUnavailable
						}
						return nil
					},
					acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (
						driver.Reply, error) {
						select {
						case <-lost:
							return driver.Reply{}, driver.ErrClosed
						default:
						}
						if first {
							first, until = false, time.Now().Add(down)
							_, _ = next()
							close(lost)
							return driver.Reply{}, driver.ErrClosed
						}
						return next()
					},
				}, nil)
				tick(t, c)
				time.Sleep(5 * time.Second)
				tick(t, c)
			})
		})
	}
}

// The store says that it has taken a grant back, and a failover brings the grant back again.
func TestOnlyOneAfterAGrantTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		c := client(t, &hooks{Backend: memlock.New(), acquire: func(_ context.Context, _ *driver.Request,
			next func() (driver.Reply, error)) (driver.Reply, error) {
			reply, err := next()
			if first {
				first = false
				return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
			}
			return reply, err
		}}, nil)
		if ran, err := tick(t, c); ran || !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("%v, %v; want ErrHeld: nobody ends that grant", ran, err)
		}
	})
}

// A borrowed lease keeps no name: the job would run again in the tick.
func TestOnlyOneRefusesReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, runs := client(t, memlock.New(), nil), 0
		job := func(context.Context) error { runs++; return nil }
		_, err := c.OnlyOne(t.Context(), "job", time.Hour, func(ctx context.Context) error {
			ran, err := c.OnlyOne(ctx, "job", time.Hour, job, holdfast.Reentrant())
			if ran || !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("under a lease of the name: %v, %v; want ErrInvalid", ran, err)
			}
			return nil
		})
		if err != nil || runs > 0 {
			t.Errorf("%v, %d more runs", err, runs)
		}
	})
}

// Very many grants of other names that were given back do not make the client forget one with a minimum hold.
func TestOnlyOneRemembersALostGrant(t *testing.T) {
	const away = ttl + 500*time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		lock(t, client(t, store, nil), "z")
		c := client(t, lossy(store, away, away), &holdfast.Config{TTL: ttl})
		tick(t, c)
		time.Sleep(2 * ttl)
		for range 5000 {
			if _, err := holdfast.TryLockAll(t.Context(), c.Mutex("a"), c.Mutex("z")); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatal(err)
			}
		}
		tick(t, c)
	})
}

// The run has failed under RetryFailed, and the store hears late that the name is free.
func TestOnlyOneAfterAFailedRun(t *testing.T) {
	failing := func(context.Context) error { return errors.New("fails") }
	for _, late := range []time.Duration{300 * time.Millisecond, ttl + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := client(t, &hooks{Backend: memlock.New(), cancel: lateCancel(late)}, nil)
			if ran, err := c.OnlyOne(t.Context(), "job", time.Hour, failing, holdfast.RetryFailed()); !ran || err == nil {
				t.Fatal(ran, err)
			}
			if ran, err := tick(t, c, holdfast.RetryFailed()); ran != (late < ttl) {
				t.Errorf("late by %v: %v, %v", late, ran, err)
			}
		})
	}
	// The same for an offer of HandOff that nobody has adopted.
	synctest.Test(t, func(t *testing.T) {
		c := client(t, &hooks{Backend: memlock.New(), cancel: lateCancel(300 * time.Millisecond)}, nil)
		l := lock(t, c, "job", holdfast.MinHold(time.Minute))
		if _, _, err := l.HandOff(); err != nil {
			t.Fatal(err)
		}
		if err := l.ReleaseNow(); err == nil {
			t.Fatal("the store has answered ReleaseNow")
		}
		if ran, err := tick(t, c); !ran {
			t.Errorf("after an offer: %v", err)
		}
	})
	// A copy of the request arrives after that, and gets a grant that nobody has.
	for _, late := range []time.Duration{100 * time.Millisecond, time.Second, 6 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store, first := memlock.New(), true
			s, err := store.Open(t.Context(), driver.SessionConfig{ID: "latelatelatelate", TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			c := client(t, &hooks{Backend: store, acquire: func(_ context.Context, r *driver.Request,
				next func() (driver.Reply, error)) (driver.Reply, error) {
				if first {
					request := *r
					time.AfterFunc(late, func() { _, _ = s.Acquire(context.Background(), &request) })
					first = false
					return driver.Reply{}, driver.ErrUncertain
				}
				return next()
			}}, nil)
			if ran, err := c.OnlyOne(t.Context(), "job", time.Hour, failing, holdfast.RetryFailed()); !ran || err == nil {
				t.Fatal(ran, err)
			}
			time.Sleep(late + 50*time.Millisecond)
			tick(t, c, holdfast.RetryFailed())
		})
	}
}

// An idle grant of Sticky, and one that readers shared who gave up, are released late.
func TestOnlyOneBesideUnusedGrants(t *testing.T) {
	late := func(store driver.Backend, away *atomic.Bool) *hooks {
		return &hooks{Backend: store, release: func(_ context.Context, _ driver.Hold, next func() error) error {
			if away.Load() {
				return driver.ErrUnavailable
			}
			return next()
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		c := client(t, late(memlock.New(), &away), nil)
		release(t, lock(t, c, "job", holdfast.Sticky(time.Minute)))
		away.Store(true)
		tick(t, c)
	})
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		store := memlock.New()
		other, c := client(t, store, nil), client(t, late(store, &away), nil)
		writer := lock(t, other, "job")
		lock(t, other, "z")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		done := make(chan error, 2)
		for range cap(done) {
			go func() {
				_, err := holdfast.LockAll(ctx, c.RWMutex("job").Reader(), c.Mutex("z"))
				done <- err
			}()
			synctest.Wait()
		}
		time.Sleep(400 * time.Millisecond)
		away.Store(true)
		release(t, writer)
		for range cap(done) {
			if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		tick(t, c)
	})
}

// A refusal names no holder: ZooKeeper's head of the queue is deleted between two readings, for instance.
func TestOnlyOneBesideNobody(t *testing.T) {
	for _, lasts := range []time.Duration{2 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			c := client(t, &hooks{Backend: memlock.New(), acquire: func(_ context.Context, _ *driver.Request,
				next func() (driver.Reply, error)) (driver.Reply, error) {
				if time.Since(begun) < lasts {
					return driver.Reply{}, nil
				}
				return next()
			}}, nil)
			if ran, err := tick(t, c); ran != (lasts < ttl) || !ran && !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("for %v: %v, %v", lasts, ran, err)
			}
		})
	}
}

// The Observer of an adopter panics, so nobody gets the lease. Its giver has used the grant, so the minimum hold stays.
func TestAdoptedLeaseThatNobodyGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver := client(t, store, nil)
		l := lock(t, giver, "job", holdfast.MinHold(holdfast.TickHold(time.Hour)))
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		taker := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
			Acquired: func(string, uint64, time.Duration) { panic("a mistake in the Observer") },
		}})
		func() {
			defer func() { _ = recover() }()
			_, err = taker.Adopt(t.Context(), ticket)
			t.Errorf("Adopt: %v; want a panic", err)
		}()
		time.Sleep(time.Second)
		r, err := giver.Inspect(t.Context(), "job")
		if err != nil || len(r.Holders) != 1 || !r.Holders[0].Kept || r.Holders[0].Abandoned {
			t.Errorf("%+v, %v; want a kept name", r.Holders, err)
		}
		if ran, err := giver.OnlyOne(t.Context(), "job", time.Hour, nothing); ran || err != nil {
			t.Errorf("%v, %v; want no second run in the tick", ran, err)
		}
	})
}

// ReleaseNow of a grant that a call of the same client gets next: that call has the lock, under the same request.
func TestOnlyOneBesideAGrantPassedOn(t *testing.T) {
	held := func(t *testing.T, c *holdfast.Client, released, next *holdfast.Lease) {
		t.Helper()
		if released.GrantToken() != next.GrantToken() {
			t.Fatal("it was not passed on")
		}
		r, err := c.Inspect(t.Context(), "job")
		if err != nil || len(r.Holders) != 1 || r.Holders[0].Abandoned {
			t.Errorf("a held lock: %+v, %v", r.Holders, err)
		}
		begun := time.Now()
		ran, err := c.OnlyOne(t.Context(), "job", time.Hour, nothing)
		if took := time.Since(begun); ran || err != nil || took > time.Second {
			t.Errorf("%v, %v after %v; want false, nil at once", ran, err, took)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		first, got := lock(t, c, "job"), make(chan *holdfast.Lease, 3)
		for range cap(got) {
			go func() {
				l, err := c.Mutex("job").Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			synctest.Wait()
		}
		release(t, first)
		released := <-got // with a block of tokens: others are in line
		if err := released.ReleaseNow(); err != nil {
			t.Fatal(err)
		}
		next := <-got
		held(t, c, released, next)
		release(t, next)
		release(t, <-got)
	})
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		released := lock(t, c, "job", holdfast.Sticky(time.Minute))
		_ = released.Context(t.Context())
		if err := released.ReleaseNow(); err != nil {
			t.Fatal(err)
		}
		next := lock(t, c, "job", holdfast.Sticky(time.Minute))
		held(t, c, released, next)
		release(t, next)
	})
}
