package holdfast_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// The first look comes after the store has said that it will report the next change. So no change
// is missed between the two. A store that does not say so, or says it late, is looked at anyway.
func TestWatchSubscribesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		stand := make(chan struct{})
		w := &watched{Backend: store, watching: func(ctx context.Context, changed func(string)) error {
			select {
			case <-stand:
			case <-ctx.Done():
				return ctx.Err()
			}
			return store.Watch(ctx, "", changed)
		}}
		c := client(t, w, nil)
		l := listen(t, all(c, ""))
		l.expect(100 * time.Millisecond)
		if _, lists := w.count(); lists != 0 {
			t.Error("a look before the store reports changes")
		}
		l.expect(400*time.Millisecond, "initial ready") // without it
		lock(t, c, "x")                                 // not reported by the store
		l.expect(promptly)
		close(stand)
		l.expect(promptly, "held x +1")
		if _, lists := w.count(); lists != 2 {
			t.Errorf("%d looks at all names; want 2", lists)
		}
		l.stop()
		l = listen(t, all(c, ""))
		l.expect(0, "initial held x +1", "initial ready") // at once
	})
}

// A lost hint is made up for by the next look, and a store that stops reporting is asked more often.
func TestWatchLostHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var drop atomic.Bool
		broken := make(chan error)
		w := &watched{Backend: store, watching: func(ctx context.Context, changed func(string)) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			go func() {
				select {
				case err := <-broken:
					cancel(err)
				case <-ctx.Done():
				}
			}()
			_ = store.Watch(ctx, "", func(name string) {
				if !drop.Load() {
					changed(name)
				}
			})
			return context.Cause(ctx)
		}}
		c := client(t, w, nil)
		l := listen(t, all(c, ""))
		l.expect(0, "initial ready")
		drop.Store(true)
		held := lock(t, c, "x")
		l.expect(ttl/2 - 100*time.Millisecond)
		l.expect(100*time.Millisecond, "held x +1")

		release(t, held)
		broken <- fmt.Errorf("%w: the connection is lost", driver.ErrUncertain)
		l.expect(promptly, "free x -1") // it may have missed something
		lock(t, c, "x")
		l.expect(ttl/3, "held x +2") // it is not known to report changes again
		drop.Store(false)
		broken <- fmt.Errorf("%w: the connection is lost", driver.ErrUncertain)
		l.expect(time.Second)
		lock(t, c, "y")
		l.expect(promptly, "held y +3")

		w.count()
		broken <- fmt.Errorf("%w: no right to watch", driver.ErrRefused)
		l.expect(promptly)
		lock(t, c, "z")
		l.expect(ttl/3, "held z +4")
		l.expect(2*ttl - ttl/3)
		if _, lists := w.count(); lists != 7 {
			t.Errorf("%d looks in two TTLs; want one, and one each third of the TTL", lists)
		}
	})
}

// An outage is one error, and the events after it are right: one difference to the last reading.
func TestWatchOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, conn := client(t, store, nil), drivertest.Faulty(store)
		l := listen(t, all(client(t, conn.Backend, nil), "p/"))
		l.expect(0, "initial ready")
		kept, gone := lock(t, c, "p/kept"), lock(t, c, "p/gone")
		l.expect(promptly, "held p/gone +2", "held p/kept +1")
		heal := conn.Cut()
		l.expect(5*ttl, "error")
		release(t, gone)
		lock(t, c, "p/new")
		l.expect(ttl)
		heal()
		l.expect(ttl, "held p/new +3", "free p/gone -2")
		release(t, kept)
		l.expect(promptly, "free p/kept -1")
		conn.Cut()
		l.expect(2*ttl, "error") // of the second outage
	})
}

// A first look that fails half-way is repeated. What has changed since is not initial.
func TestWatchFirstLookFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 101 // more than one page
		store := memlock.New()
		c := client(t, store, nil)
		var held []*holdfast.Lease
		for i := range names {
			held = append(held, lock(t, c, fmt.Sprintf("n%03d", i)))
		}
		w := &watched{Backend: store}
		w.listed = func(list []driver.Record) ([]driver.Record, error) {
			if len(list) == 100 { // the first page
				return list, nil
			}
			release(t, held[0])
			w.listed = nil
			return nil, fmt.Errorf("%w: not now", driver.ErrRefused)
		}
		var said []string
		for e, err := range client(t, w, nil).Watch(t.Context(), "") {
			if what := spoken(e, err); what != fmt.Sprintf("initial held %s +%d", e.Name, e.Token) {
				said = append(said, what)
			}
			if e.Type == holdfast.EventReady {
				break
			}
		}
		if got, want := strings.Join(said, "; "), "error; free n000 -1; initial ready"; got != want {
			t.Errorf("reported %q; want %q", got, want)
		}
	})
}

// A record that cannot be read is an event of its name, however it was noticed. The grants that it
// had before are compared with those after.
func TestWatchDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var damaged atomic.Bool
		w := &watched{Backend: store}
		w.inspect = func(name string) error {
			if damaged.Load() && name == "x" {
				return fmt.Errorf("%w: not a record", driver.ErrDamaged)
			}
			return nil
		}
		w.listed = func(list []driver.Record) ([]driver.Record, error) {
			for i := range list {
				if damaged.Load() && list[i].Name == "x" {
					list[i] = driver.Record{Name: "x", Damaged: "not a record"}
				}
			}
			return list, nil
		}
		c := client(t, w, nil)
		x := lock(t, c, "x")
		l := listen(t, all(c, ""))
		l.expect(0, "initial held x +1", "initial ready")
		damaged.Store(true)
		lock(t, c, "y")
		next := lockAsync(t, c.Mutex("x").Lock) // a hint for x
		l.expect(promptly, "damaged x", "held y +2")
		l.expect(2 * ttl) // looks at all names find it damaged still
		later := listen(t, all(c, ""))
		later.expect(0, "initial damaged x", "initial held y +2", "initial ready")
		later.stop()
		damaged.Store(false)
		l.expect(ttl, "waiting x waiting 1")
		damaged.Store(true)
		l.expect(ttl, "damaged x")
		release(t, x)
		release(t, acquired(t, "next", next))
		damaged.Store(false)
		l.expect(ttl, "free x -1")
	})
}

// The lease of a dead holder ends at the store without a hint. It is reported when it is due.
func TestWatchExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		l := listen(t, all(client(t, store, &holdfast.Config{TTL: time.Minute}), ""))
		l.expect(0, "initial ready")
		lock(t, client(t, conn, nil), "x")
		l.expect(promptly, "held x +1")
		conn.Kill()
		l.expect(ttl - 2*promptly)
		l.expect(2*promptly, "free x -1")
	})
}

// A change costs the reading of its own name, however many names there are. Many changes within a
// short time are gathered.
func TestWatchCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 3000
		store := memlock.New()
		s, err := store.Open(t.Context(), driver.SessionConfig{ID: "s", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		request := func(i int) *driver.Request {
			return &driver.Request{ID: fmt.Sprint(i), Name: fmt.Sprintf("n%05d", i), Mode: driver.Exclusive, N: 1}
		}
		for i := range names {
			if _, err := s.Acquire(t.Context(), request(i)); err != nil {
				t.Fatal(err)
			}
		}
		w := &watched{Backend: store}
		c := client(t, w, &holdfast.Config{TTL: time.Hour})
		seen := map[holdfast.EventType]int{}
		var mu sync.Mutex
		go func() {
			for e := range c.Watch(t.Context(), "n") {
				mu.Lock()
				seen[e.Type]++
				mu.Unlock()
			}
		}()
		settle := func(inspects, lists, free int) {
			t.Helper()
			synctest.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			i, l := w.count()
			if i > inspects || l > lists || seen[holdfast.EventHeld] != names || seen[holdfast.EventFree] != free {
				t.Errorf("%d names and %d pages were read, events: %v; want at most %d names and %d pages, %d free", i, l, seen,
					inspects, lists, free)
			}
		}
		settle(0, names/100+1, 0)
		if err := s.Cancel(t.Context(), "n00000", "0"); err != nil {
			t.Fatal(err)
		}
		settle(1, 0, 1)
		for range 1000 { // of one name; a look may begin after the first
			_, _ = s.Acquire(t.Context(), request(1))
		}
		settle(2, 0, 1)
		for i := range 500 {
			if err := s.Cancel(t.Context(), fmt.Sprintf("n%05d", i+1), fmt.Sprint(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		settle(500, 0, 501)
		for i := range 2000 { // too many to remember
			if err := s.Cancel(t.Context(), fmt.Sprintf("n%05d", i+501), fmt.Sprint(i+501)); err != nil {
				t.Fatal(err)
			}
		}
		settle(3000, names/100, 2501) // some twice
	})
}

// Renewals cost a watcher nothing: its looks at all names come before a renewed lease is due.
func TestWatchCostOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 150
		store := memlock.New()
		w := &watched{Backend: store}
		holder := client(t, store, nil)
		for i := range names {
			lock(t, holder, fmt.Sprintf("n%03d", i))
		}
		l := listen(t, all(client(t, w, nil), "n0"))
		synctest.Wait()
		l.said = nil
		w.count()
		l.expect(2 * ttl)
		if inspects, lists := w.count(); inspects > 0 || lists > 4*2 { // 100 names are two pages
			t.Errorf("%d names and %d pages were read in two TTLs; want none, and four times two", inspects, lists)
		}
	})
}

// Hints that nobody has cause for are no events, however many there are. They cost a bounded number
// of looks.
func TestWatchForgedHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var forge func(string)
		stands := make(chan struct{})
		w := &watched{Backend: store, watching: func(ctx context.Context, changed func(string)) error {
			forge = changed
			close(stands)
			return store.Watch(ctx, "p/", changed)
		}}
		c := client(t, w, nil)
		lock(t, c, "p/held")
		lock(t, c, "outside")
		l := listen(t, all(c, "p/"))
		l.expect(0, "initial held p/held +1", "initial ready")
		<-stands
		w.count()
		for range 100 {
			for _, name := range []string{"outside", "p", "p/\xff", "p/" + strings.Repeat("x", 600)} {
				forge(name)
			}
		}
		l.expect(promptly)
		if inspects, lists := w.count(); inspects+lists != 0 {
			t.Errorf("%d names and %d pages were read for hints that cannot be true", inspects, lists)
		}
		for range 100 { // for a tenth of a second
			for _, name := range []string{"", "p/held", "p/never"} {
				forge(name)
			}
			l.expect(time.Millisecond)
		}
		l.expect(promptly)
		if inspects, lists := w.count(); inspects+lists > 20 {
			t.Errorf("%d names and %d pages were read", inspects, lists)
		}
	})
}
