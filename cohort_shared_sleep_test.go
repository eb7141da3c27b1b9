package holdfast

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memlock"
)

// A reader that shares a grant does not ask the store when it releases. It looks at the clock: the grant may
// have expired while the machine slept.
func TestReaderReleasedAfterASleep(t *testing.T) {
	for _, slept := range []time.Duration{0, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var lost, sleeps atomic.Int64
			store := memlock.New()
			o := &Observer{Lost: func(string, uint64, Reason) { lost.Add(1) }}
			c, err := newClient(t.Context(), store, &Config{TTL: 10 * time.Second, Observer: o}, func() time.Duration {
				return time.Duration(sleeps.Load())
			})
			if err != nil {
				t.Fatal(err)
			}
			writer, err := c.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			const n = 3
			got := make(chan *Lease, n)
			for range n {
				go func() {
					l, err := c.RWMutex("x").RLock(t.Context())
					if err != nil {
						t.Error(err)
					}
					got <- l
				}()
				synctest.Wait()
			}
			if err := writer.Release(); err != nil {
				t.Fatal(err)
			}
			var readers []*Lease
			for range n {
				readers = append(readers, <-got)
			}
			synctest.Wait()
			sleeps.Add(int64(slept))
			over := slept > c.TTL()
			if over {
				if err := store.Break(t.Context(), "x", readers[0].grantToken); err != nil {
					t.Fatal(err)
				}
			}
			for i, l := range readers {
				if err := l.Release(); errors.Is(err, ErrLost) != over || !over && err != nil {
					t.Errorf("reader %d, after a sleep of %v: %v", i, slept, err)
				}
			}
			synctest.Wait()
			if want := map[bool]int64{true: n}[over]; lost.Load() != want {
				t.Errorf("%d losses were reported after a sleep of %v; want %d", lost.Load(), slept, want)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
