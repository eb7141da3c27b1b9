package redislock

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stalled is a Conn whose exchanges end when the test says so.
type stalled struct {
	Conn
	begun chan int      // the number of calls in an exchange that has begun
	end   chan struct{} // ends one exchange
}

func (c *stalled) Run(_ context.Context, _ *Script, keys, _ []string) (Value, error) {
	c.begun <- len(keys)
	<-c.end
	v := Value{Kind: List, List: make([]Value, len(keys))}
	if len(keys) == 1 {
		v = Value{}
	}
	return v, nil
}

// TestWaitsForOthers: fewer than four exchanges are under way. A call waits for others for four
// milliseconds at most, even if all calls before it in the queue give up, one after the other.
// Afterwards nothing is counted as under way.
func TestWaitsForOthers(t *testing.T) {
	pool := func() { partPool, flightPool = sync.Pool{}, sync.Pool{} } // their channels belong to the bubble
	pool()
	defer pool()
	synctest.Test(t, func(t *testing.T) {
		conn := &stalled{begun: make(chan int, 100), end: make(chan struct{}, 100)}
		m := &combiner{conn: &exchanger{Conn: conn}, script: new(Script)}
		defer close(conn.end) // so that nothing is left if the test fails
		var group sync.WaitGroup
		call := func(ctx context.Context) {
			group.Go(func() {
				if _, err := m.run(ctx, 0, newCall().name("hf:", "a", "l"), requester{}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		begun := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := len(conn.begun); n != 1 {
				t.Fatalf("%d exchanges have begun; want 1", n)
			}
			if n := <-conn.begun; n != want {
				t.Fatalf("an exchange has %d calls; want %d", n, want)
			}
		}
		for range atOnce {
			call(context.Background())
			begun(1)
		}
		for range few {
			call(context.Background())
		}
		conn.end <- struct{}{}
		begun(few)
		for range atOnce - 1 { // the exchanges of one call, which have waited for their end for longer
			conn.end <- struct{}{}
		}
		synctest.Wait()
		if m.busy != 1 || m.calls != few {
			t.Fatalf("%d exchanges with %d calls are under way; want 1 with %d", m.busy, m.calls, few)
		}
		const leavers = 6
		for i := range leavers {
			ctx, cancel := context.WithTimeout(context.Background(), moment/2+time.Duration(i)*moment)
			defer cancel()
			call(ctx)
		}
		call(context.Background())
		time.Sleep(2 * moment)
		begun(leavers - 1)
		for range 2 {
			conn.end <- struct{}{}
		}
		group.Wait()
		synctest.Wait() // also for the ends of the exchanges
		if m.busy != 0 || m.calls != 0 {
			t.Errorf("%d exchanges with %d calls are under way; want none", m.busy, m.calls)
		}
	})
}

// lagging is a Conn whose replicas confirm after so long.
type lagging struct {
	Conn
	lag time.Duration
}

func (c lagging) RunWait(ctx context.Context, calls []Call, replicas int, timeout time.Duration) (
	[]Result, int, error,
) {
	results := make([]Result, len(calls))
	for i, call := range calls {
		if n := len(call.Keys); n > 1 {
			results[i].Value = Value{Kind: List, List: make([]Value, n)}
		}
	}
	select {
	case <-time.After(min(c.lag, timeout)):
		if c.lag > timeout {
			replicas = 0
		}
		return results, replicas, nil
	case <-ctx.Done():
		return results, 0, ctx.Err()
	}
}

// TestSharedWait: calls that share an exchange wait for replicas for as long as calls that do not.
func TestSharedWait(t *testing.T) {
	pool := func() { partPool, flightPool = sync.Pool{}, sync.Pool{} } // their channels belong to the bubble
	pool()
	defer pool()
	synctest.Test(t, func(t *testing.T) {
		const wait = 2 * sharedFor
		conn := &exchanger{Conn: lagging{lag: wait - time.Second}}
		b := &Backend{conn: conn, waitReplicas: 1, life: t.Context()}
		m := &combiner{conn: conn, script: new(Script), sure: b}
		var group sync.WaitGroup
		for range 2 * few {
			group.Go(func() {
				if _, err := m.run(t.Context(), wait, newCall().name("hf:", "a", "l"), requester{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}
