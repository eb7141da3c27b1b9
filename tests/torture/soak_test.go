//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// TestSoak: after many grants, and many calls that were cancelled during a wait, everything is as
// before: goroutines, files, memory, and the store's data. HOLDFAST_TEST_SOAK=full takes a lock a
// million times.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	before, grants := testenv.Rounds(2000, 10_000), testenv.Rounds(2000, 20_000)
	first, cancels := 100, testenv.Rounds(100, 200)
	if os.Getenv("HOLDFAST_TEST_SOAK") == "full" {
		// A client of Redis remembers 4,096 cancelled requests. The first calls fill that record. They are far apart:
		// of calls that wait at the same time, the client sends only the first to the store.
		before, first = 500_000, 10_000
		grants, cancels = 1_000_000, 10_000
	}
	for name, start := range map[string]func() (url string, keys func() string){
		"redis": func() (string, func() string) {
			s := testenv.Redis(t)
			return s.URL(), func() string { return s.Do("DBSIZE") }
		},
		"sqlite": func() (string, func() string) {
			path := filepath.Join(t.TempDir(), "locks.db")
			return "sqlite:" + path, func() string { // pages are used again
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(info.Size() >> 16)
			}
		},
		"postgres": func() (string, func() string) {
			url := testenv.Postgres(t).DSN("postgres")
			return url, func() string { return "" } // its rows stay for a day, one for each name
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, keys := start()
			part, idle := 1, 0
			if name == "sqlite" {
				part = testenv.Rounds(4, 1) // it is slow under the race detector
			}
			if name == "postgres" {
				initialise(t, url, postgres.Dialect())
				part = 10 // each grant waits for a disk
				idle = 2  // connections that the pool keeps, or not if a cancelled call has just closed one
			}
			b, err := open(url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(context.Background()) }()
			soak(t, c, before/part, first/part)
			before := countOf(b, keys)
			soak(t, c, grants/part, cancels/part)
			after := before
			for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if after = countOf(b, keys); after.within(before, idle) {
					break
				}
			}
			if !after.within(before, idle) {
				t.Errorf("before: %+v\nafter:  %+v", before, after)
			}
			t.Logf("%d grants, %d cancelled: %+v", grants/part, cancels/part, after)
		})
	}
}

// count is what must not grow.
type count struct {
	goroutines, files int
	heap              uint64
	keys              string // of the store's
	used              int    // names
}

func countOf(b driver.Backend, keys func() string) (c count) {
	c.goroutines = runtime.NumGoroutine()
	files, _ := os.ReadDir("/proc/self/fd")
	c.files = len(files)
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection empties pools
	runtime.ReadMemStats(&m)
	c.heap, c.keys = m.HeapAlloc, keys()
	list, err := b.List(context.Background(), "", "", 1000)
	if c.used = len(list); err != nil {
		c.used = -1
	}
	return c
}

// within reports whether c is as before was, except for 5 % of memory and for idle connections.
func (c count) within(before count, idle int) bool {
	return c.goroutines <= before.goroutines && c.files <= before.files+idle && c.heap <= before.heap+before.heap/20 &&
		c.keys == before.keys && c.used == before.used
}

// soak takes locks of a thousand names in 32 goroutines, and tries in vain to take one that is
// held.
func soak(t *testing.T, c *holdfast.Client, grants, cancels int) {
	t.Helper()
	held, err := c.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var next, given atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(grants) {
					return
				}
				if n%int64(max(1, grants/cancels)) == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					_, err := c.Mutex("held").Lock(ctx)
					cancel()
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("a lock that is held: %v", err)
						return
					}
					given.Add(1)
				}
				l, err := c.Mutex(fmt.Sprint("soak/", n%1000)).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				// On a busy disk an answer may take longer than a call. The client then repeats the release.
				if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrUncertain) &&
					!errors.Is(err, holdfast.ErrUnavailable) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if given.Load() < int64(cancels)*9/10 {
		t.Errorf("%d calls were cancelled; want %d", given.Load(), cancels)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}
