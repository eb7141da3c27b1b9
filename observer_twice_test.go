package holdfast_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// An Observer that panics in Acquired is next called because the lease was released, and may panic
// in Released as well. Close still counts its callers correctly: it neither hangs nor returns too
// early.
func TestCloseAfterAnObserverThatPanicsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &holdfast.Observer{
			Acquired: func(string, uint64, time.Duration) { panic("of an observer") },
			Released: func(string, uint64, time.Duration, error) { panic("of an observer, too") },
		}
		c, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{TTL: ttl, Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if !panics(func() { _, _ = c.Mutex("x").Lock(t.Context()) }) {
				t.Fatal("no panic")
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		closed := make(chan struct{})
		go func() { defer close(closed); _ = c.Close(ctx) }()
		select {
		case <-closed:
		case <-time.After(5 * time.Second):
			t.Error("Close hangs")
			cancel()
			<-closed
		}
		if l, err := c.Mutex("x").TryLock(t.Context()); l != nil || err == nil {
			t.Errorf("TryLock after Close: %v, %v", l, err)
		}
	})
}

// An Observer panics, and its caller recovers: the client does not go on renewing any of several
// locks.
func TestObserverThatPanicsAmongSeveral(t *testing.T) {
	for _, what := range []string{"TryLockAll", "LockAll that fails", "DoAll", "MultiLease.Release"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				acquired, released := "", ""
				c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
					Acquired: func(name string, _ uint64, _ time.Duration) {
						if name == acquired {
							panic("of an observer")
						}
					},
					Released: func(name string, _ uint64, _ time.Duration, _ error) {
						if name == released {
							panic("of an observer")
						}
					},
				}})
				other := client(t, store, nil)
				a, b, x := c.Mutex("a"), c.Mutex("b"), c.Mutex("x")
				var held *holdfast.Lease
				switch what {
				case "TryLockAll":
					acquired = "x"
				case "LockAll that fails":
					released, held = "a", lock(t, other, "x")
				case "DoAll":
					released = "x"
				case "MultiLease.Release":
					released = "b"
				}
				if !panics(func() {
					switch what {
					case "TryLockAll":
						_, _ = holdfast.TryLockAll(t.Context(), a, b, x)
					case "LockAll that fails":
						_, _ = holdfast.TryLockAll(t.Context(), a, b, x)
					case "DoAll":
						_ = holdfast.DoAll(t.Context(), func(context.Context) error { return nil }, a, b, x)
					case "MultiLease.Release":
						m, err := holdfast.LockAll(t.Context(), a, b, x)
						if err != nil {
							t.Error(err)
							return
						}
						_ = m.Release()
					}
				}) && what != "LockAll that fails" {
					t.Fatal("no panic")
				}
				if held != nil {
					release(t, held)
				}
				synctest.Wait()
				acquired, released = "", ""
				time.Sleep(2 * ttl)
				for _, name := range []string{"a", "b", "x"} {
					l, err := other.Mutex(name).TryLock(t.Context())
					if err != nil {
						t.Errorf("two TTLs later: %v", err)
						continue
					}
					release(t, l)
				}
			})
		})
	}
}

// Released is called where a panic does not end the process, also when LockAll releases a part: by
// the goroutine that called LockAll, or by the client's own.
func TestObserverOfPartsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var mu sync.Mutex
		var stacks []string
		c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
			Released: func(name string, _ uint64, _ time.Duration, _ error) {
				mu.Lock()
				defer mu.Unlock()
				buf := make([]byte, 1<<16)
				stacks = append(stacks, string(buf[:runtime.Stack(buf, false)]))
			},
		}})
		other := client(t, store, nil)
		lock(t, other, "x")
		go func() {
			if m, err := holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("x")); err == nil {
				_ = m.Release()
			}
		}()
		time.Sleep(2 * time.Second) // "a" has been released
		mu.Lock()
		defer mu.Unlock()
		if len(stacks) != 1 {
			t.Fatalf("%d parts released", len(stacks))
		}
		if s := stacks[0]; !contains(s, "LockAll") && !contains(s, "callQueue") {
			t.Errorf("Released was called by a goroutine in which nobody can recover:\n%s", s)
		}
	})
}

func contains(s, part string) bool {
	for i := range len(s) - len(part) + 1 {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}

// A Logger or an Observer that ends its goroutine, as t.Fatal does, loses that call and no other.
func TestObserverThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var lines, losses atomic.Int64
		c := client(t, store, &holdfast.Config{
			Logger: slog.New(handler(func() {
				if lines.Add(1) == 1 {
					runtime.Goexit()
				}
			})),
			Observer: &holdfast.Observer{Lost: func(string, uint64, holdfast.Reason) {
				if losses.Add(1) == 1 {
					runtime.Goexit()
				}
			}},
		})
		for range 3 {
			l := lock(t, c, "x", holdfast.MaxHold(time.Second))
			<-l.Done()
			_ = l.Release()
			time.Sleep(time.Second)
		}
		if n, m := lines.Load(), losses.Load(); n != 3 || m != 3 {
			t.Errorf("of 3 losses the log has %d, the Observer %d", n, m)
		}
		began := time.Now()
		_ = c.Close(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("Close waited for %v", took)
		}
	})
}

type handler func()

func (h handler) Enabled(context.Context, slog.Level) bool  { return true }
func (h handler) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }
