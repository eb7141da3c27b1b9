package sqltest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// KeptWithALockedRow renews while one row is locked, on a pool that the application has used up and
// waits for. The reserved connection must not be given up for that row: the application would get
// it, and all leases would end. The exchanges get the time that clients allow: a third of the TTL,
// at most 5 s.
func (x *Locked) KeptWithALockedRow(t *testing.T, exchanges ...time.Duration) {
	for _, exchange := range exchanges {
		t.Run(exchange.String(), func(t *testing.T) {
			t.Parallel()
			db := x.Open()
			db.SetMaxOpenConns(4)
			b := sqllock.New(db, x.Dialect(), nil)
			t.Cleanup(func() { _ = b.Close() })
			s := open(t, b, "s")
			holds := Take(t, s, fmt.Sprintf("kept-%d", exchange.Milliseconds()), 4, driver.Exclusive)
			exhaust(t, db)
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			var got atomic.Int64
			for range 4 {
				all.Go(func() {
					if conn, err := db.Conn(ctx); err == nil {
						got.Add(1)
						<-ctx.Done()
						_ = conn.Close()
					}
				})
			}
			for db.Stats().WaitCount < 4 {
				time.Sleep(time.Millisecond)
			}
			defer x.Block(holds[1].Name)()
			var unknown []int
			var err error
			for n := range 5 {
				short, cancel := context.WithTimeout(t.Context(), exchange)
				began := time.Now()
				var changes []driver.Change
				changes, err = s.Renew(short, holds)
				cancel()
				unknown = unknown[:0]
				for _, ch := range changes {
					unknown = append(unknown, ch.Index)
				}
				t.Logf("Renew %d: not proven: %v, %v, after %v", n, unknown, err, time.Since(began))
				time.Sleep(50 * time.Millisecond)
			}
			if err != nil || !slices.Equal(unknown, []int{1}) {
				t.Errorf("the last renewal: not proven: %v, %v; want only the one whose row is locked", unknown, err)
			}
			if n := got.Load(); n > 0 {
				t.Errorf("%d connections were given up, and the application has them", n)
			}
		})
	}
}

// RenewalsWithManyLockedRows renews leases while many of their rows are locked, in the time that
// clients allow for a TTL of 15 s. All others must be proven; otherwise they would be lost before a
// third attempt gets far.
func (x *Locked) RenewalsWithManyLockedRows(t *testing.T) {
	const all, each, exchange = 128, 6, 5 * time.Second
	b := sqllock.New(x.Open(), x.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	s := open(t, b, "s")
	holds := Take(t, s, "many", all, driver.Exclusive)
	locked := map[int]bool{}
	for i := 0; i < all; i += each {
		locked[i] = true
		defer x.Block(holds[i].Name)()
	}
	ctx, cancel := context.WithTimeout(t.Context(), exchange)
	defer cancel()
	began := time.Now()
	changes, err := s.Renew(ctx, holds)
	t.Logf("Renew took %v", time.Since(began))
	if err != nil {
		t.Error(err)
	}
	missed := 0
	for _, ch := range changes {
		if !locked[ch.Index] {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d of %d leases without a locked row were not proven", missed, all-len(locked))
	}
}

// ShortLeasesWithALockedRow keeps leases of a short TTL while the row of one of them is locked.
func (x *Locked) ShortLeasesWithALockedRow(t *testing.T) {
	for _, ttl := range []time.Duration{1500 * time.Millisecond, 3 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			c := x.clientOn(t, x.Dialect(), ttl)
			var leases []*holdfast.Lease
			for i := range 20 {
				l, err := c.Mutex(fmt.Sprintf("%s/%02d", t.Name(), i)).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				leases = append(leases, l)
			}
			end := x.Block(leases[10].Name())
			time.Sleep(2 * ttl)
			lost := 0
			for i, l := range leases {
				if i != 10 && l.Err() != nil {
					lost++
				}
			}
			end()
			if lost > 0 {
				t.Errorf("%d of 19 leases without a locked row are lost", lost)
			}
		})
	}
}
