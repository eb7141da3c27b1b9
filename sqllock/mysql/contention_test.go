package mysql_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// resource is guarded by a name. It records its current users.
type resource struct {
	writers, others, permits atomic.Int64
	highest                  atomic.Uint64
}

// visit uses the resource after a grant of r with token.
func (x *resource) visit(t *testing.T, r *driver.Request, token uint64) {
	if r.Mode == driver.Exclusive {
		if last := x.highest.Swap(token); token <= last {
			t.Errorf("%s: token %d after %d", r.Name, token, last)
		}
		if w, o := x.writers.Add(1), x.others.Load(); w != 1 || o != 0 {
			t.Errorf("%s: %d writers and %d others at once", r.Name, w, o)
		}
	} else {
		if last := x.highest.Load(); token <= last && r.Mode == driver.Shared {
			t.Errorf("%s: token %d of a reader after %d of a writer", r.Name, token, last)
		}
		x.others.Add(1)
		if w := x.writers.Load(); w != 0 {
			t.Errorf("%s: %d writers at once", r.Name, w)
		}
		if n := x.permits.Add(int64(r.N)); r.Mode == driver.Permits && n > int64(r.Limit) {
			t.Errorf("%s: %d permits of %d", r.Name, n, r.Limit)
		}
	}
	time.Sleep(rand.N(time.Millisecond)) // the guarded work
	if r.Mode == driver.Exclusive {
		x.writers.Add(-1)
	} else {
		x.permits.Add(-int64(r.N))
		x.others.Add(-1)
	}
}

// Many sessions of several processes on few names: exclusion holds, tokens grow, and no
// transactions deadlock.
func TestContention(t *testing.T) {
	const processes, sessions, names = 8, 8, 8
	server := maria(t)
	var all [names]resource
	var grants atomic.Int64
	var wg sync.WaitGroup
	enough := int64(testenv.Rounds(400, 5000))
	for range processes {
		first := join(t, server.DSN("root", ""), time.Minute)
		for k := range sessions {
			c := *first
			if k > 0 {
				var err error
				c.id = fmt.Sprintf("%s%d", first.id[:20], k)
				if c.Session, err = first.b.Open(t.Context(), driver.SessionConfig{ID: c.id, TTL: time.Minute}); err != nil {
					t.Fatal(err)
				}
			}
			wg.Go(func() {
				defer func() { _ = c.Session.Close(context.Background()) }()
				for grants.Load() < enough {
					n := rand.IntN(names)
					x, name := &all[n], fmt.Sprint("name ", n)
					r := c.req(name)
					switch {
					case n >= 6: // two of them are semaphores
						r.Mode, r.Limit, r.N = driver.Permits, 3, 1+rand.IntN(2)
					case n >= 3 && rand.IntN(3) > 0: // three have readers and writers
						r.Mode = driver.Shared
					}
					r.Wait = rand.IntN(8) > 0
					rep, err := c.acquired(r)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					switch {
					case rep.Token == 0 && !r.Wait:
						continue
					case rep.Token == 0 && rand.IntN(8) == 0:
						if err := testenv.Repeated(func() error { return c.Cancel(c.ctx, name, r.ID) }); err != nil {
							t.Errorf("Cancel: %v", err)
						}
						continue
					case rep.Token == 0 && rand.IntN(8) == 0:
						if _, err := c.renewal(hold(r, 0)); err != nil {
							t.Errorf("Renew of a place: %v", err)
						}
					}
					h, err := c.handed(r, rep)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					x.visit(t, r, h.Token)
					grants.Add(1)
					if changes, err := c.renewal(h); err != nil || len(changes) > 0 {
						t.Errorf("Renew = %+v, %v", changes, err)
					}
					if err := c.released(h); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := status(t, pool(t, server.DSN("root", "")), "Innodb_deadlocks"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
