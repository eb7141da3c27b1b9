package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// events returns the history of a name in short: event, token, reason.
func events(t *testing.T, c *holdfast.Client, name string) (list []string) {
	t.Helper()
	synctest.Wait() // entries are added in the background
	entries, err := c.History(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %d %s", e.Event, e.Token, e.Reason)))
	}
	return list
}

func sameEvents(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("history %q\nwant    %q", got, want)
	}
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a := client(t, store, &holdfast.Config{TTL: ttl, History: 100, Program: "a", Labels: map[string]string{"k": "v"}})
		b := client(t, store, &holdfast.Config{TTL: ttl, History: 100, Program: "b"})
		start := time.Now()
		l := lock(t, a, "x", holdfast.Note("first"))
		got := make(chan *holdfast.Lease)
		go func() { l, _ := b.Mutex("x").Lock(t.Context()); got <- l }()
		time.Sleep(3 * time.Second)
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		l2 := <-got
		time.Sleep(ttl / 2) // the next renewal confirms the push
		sameEvents(t, events(t, a, "x"), fmt.Sprint("granted ", l.Token()), fmt.Sprint("released ", l.Token()),
			fmt.Sprint("granted ", l2.Token()))
		entries, err := a.History(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			program  string
			at, took time.Duration
		}{{"a", 0, 0}, {"a", 3 * time.Second, 3 * time.Second}, {"b", 3 * time.Second, 3 * time.Second}} {
			e := entries[i]
			at := e.At.Sub(start).Round(time.Millisecond)
			if e.By.Program != want.program || at != want.at || e.Took != want.took {
				t.Errorf("%d: %s, at %v, took %v; want %+v", i, e.By.Program, at, e.Took, want)
			}
		}
		if by := entries[0].By; by.Note != "first" || by.Labels["k"] != "v" || by.PID == 0 {
			t.Errorf("by %+v", by)
		}
		if text := entries[1].String(); !strings.HasPrefix(text, fmt.Sprint("token ", l.Token(), ": released a (")) {
			t.Errorf("%q", text)
		}
		if err := l2.Release(); err != nil {
			t.Fatal(err)
		}
		sameEvents(t, events(t, a, "x")[3:], fmt.Sprint("released ", l2.Token()))
	})
}

// A client adds nothing unless it is told to.
func TestNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		if err := lock(t, c, "x").Release(); err != nil {
			t.Fatal(err)
		}
		sameEvents(t, events(t, c, "x"))
	})
}

// A grant that only a push has reported is in no history until the store has confirmed it. A forged
// push is never confirmed.
func TestHistoryOfAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		forged := make(chan uint64, 1)
		h := &hooks{Backend: store}
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			reply, err := next()
			if reply.Wake != nil {
				reply.Wake = forged
			}
			return reply, err
		}
		holder, victim := client(t, store, nil), client(t, h, &holdfast.Config{TTL: ttl, History: 10})
		l := lock(t, holder, "x")
		got := make(chan *holdfast.Lease)
		go func() { l, _ := victim.Mutex("x").Lock(t.Context()); got <- l }()
		synctest.Wait()
		forged <- l.Token() + 1
		believes := <-got
		sameEvents(t, events(t, holder, "x"))
		<-believes.Done()
		sameEvents(t, events(t, holder, "x"))
		if err := believes.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v; want ErrLost", err)
		}
		sameEvents(t, events(t, holder, "x"))
	})
}

// Each way in which a grant ends has its entry, once.
func TestHistoryOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		c := client(t, conn, &holdfast.Config{TTL: ttl, History: 100})
		other := client(t, store, &holdfast.Config{TTL: ttl, History: 100})

		l := lock(t, c, "maximum", holdfast.MaxHold(time.Second))
		<-l.Done()
		sameEvents(t, events(t, c, "maximum"), fmt.Sprint("granted ", l.Token()), fmt.Sprint("lost ", l.Token(), " max hold"))

		l = lock(t, c, "offered")
		time.Sleep(time.Second) // two clients add entries: their times tell the order
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		adopted := take(t)(other.Adopt(t.Context(), ticket))
		if err := adopted.Release(); err != nil {
			t.Fatal(err)
		}
		token := fmt.Sprint(" ", l.Token())
		sameEvents(t, events(t, c, "offered"), "granted"+token, "handed off"+token, "adopted"+token, "released"+token)

		outer := lock(t, c, "borrowed", holdfast.Reentrant())
		inner := take(t)(c.Mutex("borrowed", holdfast.Reentrant()).Lock(outer.Context(t.Context())))
		if err := errors.Join(inner.Release(), outer.Release()); err != nil {
			t.Fatal(err)
		}
		sameEvents(t, events(t, c, "borrowed"), fmt.Sprint("granted ", outer.Token()), fmt.Sprint("released ", outer.Token()))

		l = lock(t, c, "cut off")
		synctest.Wait()
		heal := conn.Cut()
		<-l.Done()
		heal()
		time.Sleep(ttl)
		sameEvents(t, events(t, c, "cut off"), fmt.Sprint("granted ", l.Token()),
			fmt.Sprint("lost ", l.Token(), " unreachable"))

		l = lock(t, other, "closed")
		if err := other.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		sameEvents(t, events(t, c, "closed"), fmt.Sprint("granted ", l.Token()), fmt.Sprint("released ", l.Token()))
	})
}

// A store that takes no entries does not delay locks, and the log says so once.
func TestHistoryThatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hooks{Backend: memlock.New()}
		var asked atomic.Int64
		h.history = func(context.Context) error {
			asked.Add(1)
			return fmt.Errorf("%w: no table", holdfast.ErrRefused)
		}
		log := &logLines{}
		c := client(t, h, &holdfast.Config{TTL: ttl, History: 10, Logger: log.logger()})
		for range 100 {
			if err := lock(t, c, "x").Release(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%d exchanges; want one, then a pause", n)
		}
		if n := log.count("not added to a history"); n != 1 {
			t.Errorf("%d lines in the log; want 1", n)
		}
		time.Sleep(time.Minute)
		_ = lock(t, c, "x")
		synctest.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("%d exchanges after a minute; want 2", n)
		}
		if err := c.Break(t.Context(), "x", 1, ""); !errors.Is(err, holdfast.ErrGone) {
			t.Errorf("Break: %v", err)
		}
		l := lock(t, c, "y")
		if err := c.Break(t.Context(), "y", l.Token(), "stuck"); !errors.Is(err, holdfast.ErrUnrecorded) ||
			!errors.Is(err, holdfast.ErrRefused) {
			t.Errorf("Break: %v; want ErrUnrecorded and why", err)
		}
	})
}

func TestHistoryIsChecked(t *testing.T) {
	for _, n := range []int{-1, 1001} {
		_, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{History: n})
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("History %d: %v; want ErrInvalid", n, err)
		}
	}
	c, err := holdfast.New(t.Context(), memlock.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	for what, err := range map[string]error{
		"a long reason":     c.Break(t.Context(), "x", 1, strings.Repeat("x", 1025)),
		"a reason in bytes": c.Revoke(t.Context(), "x", 1, "\xff"),
		"no name":           c.Revoke(t.Context(), "", 1, ""),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", what, err)
		}
	}
	if _, err := c.History(t.Context(), ""); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("the history of no name: %v; want ErrInvalid", err)
	}
	if err := c.Revoke(t.Context(), "x", 1, ""); !errors.Is(err, holdfast.ErrGone) {
		t.Errorf("Revoke of no grant: %v; want ErrGone", err)
	}
}

// logLines collects the lines of a log.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) logger() *slog.Logger {
	return logging(func(r slog.Record) {
		line := r.Message
		r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	})
}

// count returns the number of lines that contain text.
func (l *logLines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
