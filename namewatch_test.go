package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// promptly is how soon a pushed change is reported: looks are 20 ms apart.
const promptly = 21 * time.Millisecond

// spoken returns an event in one line.
func spoken(e holdfast.Event, err error) string {
	if err != nil {
		return "error"
	}
	var b strings.Builder
	if e.Initial {
		b.WriteString("initial ")
	}
	b.WriteString(string(e.Type))
	if e.Name != "" {
		b.WriteString(" " + e.Name)
	}
	for _, h := range e.Granted {
		fmt.Fprintf(&b, " +%d", h.Token)
	}
	for _, h := range e.Ended {
		fmt.Fprintf(&b, " -%d", h.Token)
	}
	if e.Waiting > 0 {
		fmt.Fprintf(&b, " waiting %d", e.Waiting)
	}
	if e.Kind == "latch" {
		fmt.Fprintf(&b, " count %d", e.Count)
	}
	return b.String()
}

// listener is a Watch under way in a bubble.
type listener struct {
	t    *testing.T
	mu   sync.Mutex
	said []string
	stop func()
}

func listen(t *testing.T, watch func(context.Context) iter.Seq2[holdfast.Event, error]) *listener {
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{t: t}
	done := make(chan struct{})
	l.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		for e, err := range watch(ctx) {
			l.mu.Lock()
			l.said = append(l.said, spoken(e, err))
			l.mu.Unlock()
		}
	}()
	t.Cleanup(l.stop)
	return l
}

// expect checks what was reported since the last call, after d.
func (l *listener) expect(d time.Duration, want ...string) {
	l.t.Helper()
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, want := strings.Join(l.said, "; "), strings.Join(want, "; "); got != want {
		l.t.Fatalf("reported %q; want %q", got, want)
	}
	l.said = nil
}

// all returns the Watch of prefix.
func all(c *holdfast.Client, prefix string) func(context.Context) iter.Seq2[holdfast.Event, error] {
	return func(ctx context.Context) iter.Seq2[holdfast.Event, error] { return c.Watch(ctx, prefix) }
}

// watched counts what a watcher asks the store, and lets a test decide about hints.
type watched struct {
	driver.Backend
	mu       sync.Mutex
	inspects int
	lists    int
	inspect  func(name string) error                          // nil: the store answers
	listed   func([]driver.Record) ([]driver.Record, error)   // nil: as it is
	watching func(ctx context.Context, to func(string)) error // nil: as the store does
}

func (w *watched) note(count *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*count++
}

// count returns what was asked since the last call.
func (w *watched) count() (inspects, lists int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	inspects, lists = w.inspects, w.lists
	w.inspects, w.lists = 0, 0
	return inspects, lists
}

func (w *watched) Inspect(ctx context.Context, name string) (driver.Record, error) {
	w.note(&w.inspects)
	if w.inspect != nil {
		if err := w.inspect(name); err != nil {
			return driver.Record{}, err
		}
	}
	return w.Backend.Inspect(ctx, name)
}

func (w *watched) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	w.note(&w.lists)
	list, err := w.Backend.List(ctx, prefix, after, limit)
	if w.listed != nil && err == nil {
		list, err = w.listed(list)
	}
	return list, err
}

func (w *watched) Watch(ctx context.Context, prefix string, changed func(string)) error {
	if w.watching != nil {
		return w.watching(ctx, changed)
	}
	return driver.Watch(ctx, w.Backend, prefix, changed)
}

// Each change of a name is one event, with the grants that are new and those that have ended.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		ctx := t.Context()
		before := lock(t, a, "p/before")
		lock(t, a, "other")
		l := listen(t, all(b, "p/"))
		l.expect(0, "initial held p/before +1", "initial ready")

		held := lock(t, a, "p/x")
		l.expect(promptly, "held p/x +3")
		next := lockAsync(t, b.Mutex("p/x").Lock)
		l.expect(promptly, "waiting p/x waiting 1")
		release(t, held)
		handed := acquired(t, "next", next)
		l.expect(promptly, "held p/x +4 -3")
		release(t, handed)
		l.expect(promptly, "free p/x -4")
		release(t, before)
		l.expect(promptly, "free p/before -1")

		writer := take(t)(a.RWMutex("p/rw").Lock(ctx))
		l.expect(promptly, "held p/rw +5")
		if err := writer.Downgrade(); err != nil {
			t.Fatal(err)
		}
		l.expect(promptly, "changed p/rw")
		reader := take(t)(b.RWMutex("p/rw").RLock(ctx))
		l.expect(promptly, "held p/rw +6")
		release(t, writer)
		l.expect(promptly, "ended p/rw -5")
		if err := a.Break(ctx, "p/rw", reader.Token(), ""); err != nil {
			t.Fatal(err)
		}
		l.expect(promptly, "free p/rw -6")

		permits := take(t)(a.Semaphore("p/s", 3).Acquire(ctx, 2))
		l.expect(promptly, "held p/s +7")
		for _, limit := range []int{3, 5, 0} { // 3 only makes it stay, 0 only lets it go
			if err := a.SetLimit(ctx, "p/s", limit); err != nil {
				t.Fatal(err)
			}
			l.expect(promptly, "changed p/s")
		}
		release(t, permits)
		l.expect(promptly, "free p/s -7")
		for _, c := range []struct {
			limit int
			want  string
		}{{2, "changed p/s"}, {0, "free p/s"}} {
			if err := a.SetLimit(ctx, "p/s", c.limit); err != nil {
				t.Fatal(err)
			}
			l.expect(promptly, c.want)
		}

		latch := a.Latch("p/l")
		if _, err := latch.Set(ctx, 2); err != nil {
			t.Fatal(err)
		}
		l.expect(promptly, "count p/l count 2")
		if _, err := latch.CountDown(ctx, ""); err != nil {
			t.Fatal(err)
		}
		l.expect(promptly, "count p/l count 1")
		if err := latch.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		l.expect(promptly, "free p/l")

		kept := lock(t, a, "p/kept", holdfast.MinHold(time.Second))
		l.expect(promptly, "held p/kept +8")
		release(t, kept)
		l.expect(promptly, "ended p/kept -8")
		l.expect(time.Second, "free p/kept")

		offered := lock(t, a, "p/x")
		l.expect(promptly, "held p/x +9")
		ticket, _, err := offered.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		adopted := take(t)(b.Adopt(ctx, ticket))
		l.expect(promptly, "changed p/x")
		release(t, adopted)
		l.expect(promptly, "free p/x -9")
		l.expect(10 * ttl) // renewals are no changes
	})
}

// What happens between two readings is one difference. A name that was released and taken again by
// the same holder shows both grants.
func TestWatchMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, struct{ driver.Backend }{store}, nil) // it is polled
		l := listen(t, all(c, ""))
		l.expect(0, "initial ready")
		first := lock(t, c, "x")
		l.expect(ttl/3, "held x +1")
		release(t, first)
		release(t, lock(t, c, "x")) // token 2: nobody sees it
		second := lock(t, c, "x")
		release(t, lock(t, c, "y"))
		l.expect(ttl/3, "held x +3 -1")
		release(t, second)
		if _, err := c.Latch("x").Set(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		l.expect(ttl/3, "free x -3 count 7")
	})
}

// Watch ends with its context, with the caller's loop, and with the client.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		w := &watched{Backend: store}
		c, other := client(t, w, nil), client(t, store, nil)
		lock(t, other, "a")
		lock(t, other, "b")
		for range c.Watch(t.Context(), "") {
			break
		}
		l := listen(t, all(c, ""))
		l.expect(0, "initial held a +1", "initial held b +2", "initial ready")
		l.stop()
		l.expect(0)
		var last error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, err := range c.Watch(t.Context(), "") {
				last = err
			}
		}()
		synctest.Wait()
		within(t, "Close", 0, 0, func() {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		<-ended
		if !errors.Is(last, holdfast.ErrClosed) {
			t.Errorf("after Close: %v", last)
		}
		w.count()
		said := 0
		for _, err := range c.Watch(t.Context(), "") {
			last = err
			said++
		}
		if _, lists := w.count(); !errors.Is(last, holdfast.ErrClosed) || said != 1 || lists != 0 {
			t.Errorf("Watch of a closed client: %d times, at last %v, after %d readings", said, last, lists)
		}
		for _, err := range (*holdfast.Client)(nil).Watch(t.Context(), "") {
			last = err
		}
		if !errors.Is(last, holdfast.ErrInvalid) {
			t.Errorf("Watch of no client: %v", last)
		}
	})
}

// A caller that is slow delays nobody, and hears the difference when it comes back.
func TestWatchSlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		goOn := make(chan bool)
		l := listen(t, func(ctx context.Context) iter.Seq2[holdfast.Event, error] {
			return func(yield func(holdfast.Event, error) bool) {
				c.Watch(ctx, "")(func(e holdfast.Event, err error) bool {
					<-goOn
					return yield(e, err)
				})
			}
		})
		synctest.Wait()
		within(t, "two locks", 0, 0, func() { release(t, lock(t, c, "x")); lock(t, c, "x") })
		time.Sleep(10 * ttl)
		goOn <- true
		l.expect(0, "initial ready")
		goOn <- true
		close(goOn)
		l.expect(promptly, "held x +2")
	})
}

// Observe is told at once of a leader, of its resignation, and of the process that adopts it. A name
// that is no election is one error.
func TestObserveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		w := &watched{Backend: store}
		c, other := client(t, w, nil), client(t, store, &holdfast.Config{Program: "other"})
		l := listen(t, func(ctx context.Context) iter.Seq2[holdfast.Event, error] {
			return func(yield func(holdfast.Event, error) bool) {
				for l, err := range c.Election("boss").Observe(ctx) {
					e := holdfast.Event{Type: "nobody"}
					if l != nil {
						e.Type, e.Granted = holdfast.EventType(l.Name), []holdfast.Holder{l.Holder}
					}
					if !yield(e, err) {
						return
					}
				}
			}
		})
		l.expect(0, "nobody")
		w.count()
		lead := take(t)(other.Election("boss", holdfast.Candidate("a", "")).Campaign(t.Context()))
		l.expect(promptly, "a +1")
		if inspects, lists := w.count(); inspects > 2 || lists > 0 {
			t.Errorf("%d readings of the name, %d of others; want at most 2, and none", inspects, lists)
		}
		next := lockAsync(t, other.Election("boss", holdfast.Candidate("b", "")).Campaign)
		l.expect(promptly)
		release(t, lead)
		lead = acquired(t, "b", next)
		l.expect(promptly, "b +2")
		lock(t, other, "boss2") // another name
		l.expect(promptly)
		release(t, lead)
		l.expect(promptly, "nobody")
		permits := take(t)(other.Semaphore("boss", 2).Acquire(t.Context(), 1))
		l.expect(promptly, "error")
		take(t)(other.Semaphore("boss", 2).Acquire(t.Context(), 1))
		l.expect(promptly)
		release(t, permits)
		l.expect(promptly)
	})
}
