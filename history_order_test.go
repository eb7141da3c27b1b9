package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// slowHistory delays the entries about locks of one client before they reach the store. All else, and the
// requests to holders, are as fast as ever.
type slowHistory struct {
	driver.Backend
	by time.Duration
}

func (s *slowHistory) AddHistory(ctx context.Context, name, text string, keep int) error {
	if name != "" {
		time.Sleep(s.by)
	}
	return s.Backend.AddHistory(ctx, name, text, keep)
}

// An operator's entry is never shown after what it has caused, however long it was under way.
//
// A break:
//
//	operator                  store                       waiter
//	t0 sends the break
//	                          t1 ends 1, grants 2
//	                                                      t2 hears of 2
//	t3 has the answer
//	t4 sends the entry,
//	   "t4-t0 ago"
//	                                                      t5 sends its entry, "t5-t2 ago"
//	                          t6 adds that: at t2+(t6-t5)
//	                          t7 adds the break: at t0+(t7-t4)
//
// t0 is before the break, and t3 is after it; but the grant may have been seen at t2, before t3. So the
// time to show is t0, or at most t2. What is late is t7-t4: the operator knows it only when the entry is
// at the store, and cannot change it there. This holds for each store: a new connection, a script to load,
// the waiter's transaction. A reader can tell the order by the tokens: 2 is exclusive, so 1 had ended.
//
// A request:
//
//	operator                  store                       holder
//	t0 sees 1
//	t1 sends the request
//	                          t2 has it
//	                                                      t3 reads it, and sends the release
//	                          t4 grants 2                 t5 sends its entry, "t5-t3 ago"
//	t6 has the answer
//	t7 sends the entry, "t7-t1 ago"
//	                          t8 adds the request: at t1+(t8-t7)
//
// The same, but the release of 1 is also after it. If the holder releases on its own between t0 and t2,
// the request is shown at the release: after t0, when the operator had called.
func TestHistoryOfAnOperatorInOrder(t *testing.T) {
	cases := map[string]struct {
		act  func(ctx context.Context, op *holdfast.Client, l *holdfast.Lease) error
		what string
	}{
		"break": {func(ctx context.Context, op *holdfast.Client, l *holdfast.Lease) error {
			return op.Break(ctx, "x", l.Token(), "stuck")
		}, holdfast.HistoryBroken},
		"revoke": {func(ctx context.Context, op *holdfast.Client, l *holdfast.Lease) error {
			return op.Revoke(ctx, "x", l.Token(), "a fix")
		}, holdfast.HistoryAsked},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				cfg := &holdfast.Config{TTL: ttl, History: 50}
				holder, waiter := client(t, store, cfg), client(t, store, cfg)
				op := client(t, &slowHistory{store, 3 * time.Second}, nil)
				l := lock(t, holder, "x")
				first := l.Token()
				got := make(chan *holdfast.Lease, 1)
				go func() { l, _ := waiter.Mutex("x").Lock(t.Context()); got <- l }()
				time.Sleep(time.Second)
				began := time.Now()
				go func() {
					select {
					case <-holdfast.Revoked(l.Context(context.Background())):
						_ = l.Release()
					case <-l.Done():
					}
				}()
				if err := tc.act(t.Context(), op, l); err != nil {
					t.Fatal(err)
				}
				next := <-got
				time.Sleep(ttl)
				entries, err := op.History(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				act, acts := -1, 0
				for i := range entries {
					if entries[i].Event == tc.what {
						act, acts = i, acts+1
					}
				}
				if acts != 1 {
					t.Fatalf("%d entries of the act: %v", acts, entries)
				}
				for i := range entries {
					e, after := &entries[i], false
					switch e.Event {
					case holdfast.HistoryGranted:
						after = e.Token == next.Token()
					case holdfast.HistoryReleased, holdfast.HistoryLost:
						after = e.Token == first
					default:
						continue
					}
					if after != (i > act) || after && e.At.Before(entries[act].At) {
						t.Errorf("%v after the call: %s", e.At.Sub(began), e)
						t.Errorf("%v after the call: %s", entries[act].At.Sub(began), &entries[act])
					}
				}
				if at := entries[act].At; at.Before(began) {
					t.Errorf("the act is shown %v before the call", began.Sub(at))
				}
			})
		})
	}
}

// The times of readers and of permits tell nothing about an earlier grant, which may still be held.
func TestHistoryOfAnOperatorBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, &holdfast.Config{TTL: ttl, History: 50})
		first := take(t)(c.RWMutex("rw").RLock(t.Context()))
		time.Sleep(time.Second)
		second := take(t)(client(t, store, &holdfast.Config{TTL: ttl, History: 50}).RWMutex("rw").RLock(t.Context()))
		time.Sleep(time.Second)
		if err := c.Break(t.Context(), "rw", first.Token(), ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		entries, err := c.History(t.Context(), "rw")
		if err != nil {
			t.Fatal(err)
		}
		var granted, broken time.Time
		for _, e := range entries {
			switch {
			case e.Event == holdfast.HistoryBroken:
				broken = e.At
			case e.Token == second.Token():
				granted = e.At
			}
		}
		if d := broken.Sub(granted); d != time.Second {
			t.Errorf("broken %v after the grant beside it; want 1s", d)
		}
	})
}
