package console

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// frozen is a store that lists nothing while it is frozen.
type frozen struct {
	driver.Backend
	now atomic.Bool
}

func (f *frozen) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if name == "unread" {
		return driver.Record{}, driver.ErrUnavailable
	}
	return f.Backend.Inspect(ctx, name)
}

func (f *frozen) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	if f.now.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.Backend.List(ctx, prefix, after, n)
}

// A console whose store was frozen reads it again soon after it is back. Until then the page of a lock that
// could be read does not say that the store is silent.
func TestFrozenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &frozen{Backend: memlock.New()}
		c, err := holdfast.New(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		if _, err := c.Mutex("a").TryLock(t.Context()); err != nil {
			t.Fatal(err)
		}
		o := Options{Every: 2 * time.Second, MaxLocks: 100, MaxViewers: 1}
		r := &reader{c: c, o: &o, began: time.Now(), slot: make(chan struct{}, 1)}
		h := &console{c: c, o: o, reader: r, looks: &looks{c: c}}
		v := r.join()
		time.Sleep(5 * time.Second)
		store.now.Store(true)
		for r.latest().err == nil {
			time.Sleep(time.Second)
		}
		w := httptest.NewRecorder()
		h.routes().ServeHTTP(w, httptest.NewRequest("GET", "/lock?name=a", nil))
		if page := w.Body.String(); strings.Contains(page, "has not answered") || !strings.Contains(page, "The other names") {
			t.Error(page)
		}
		store.now.Store(false)
		back := time.Now()
		for r.latest().err != nil {
			time.Sleep(100 * time.Millisecond)
		}
		// A reading that was under way may wait for an answer to its end.
		if took := time.Since(back); took > readLimit+3*time.Second {
			t.Errorf("it was read again after %v", took)
		}
		r.leave(v)
		time.Sleep(time.Minute) // the reader has ended
	})
}

// Half a lease without a renewal is said of leases that are renewed, and of no other.
func TestLeaseLevels(t *testing.T) {
	s := &snapshot{longest: map[string]time.Duration{"a": time.Minute}, graph: &graph{}}
	for name, c := range map[string]struct {
		h    holdfast.Holder
		want lease
		says string
	}{
		"renewed": {holdfast.Holder{Left: 12 * time.Second, Lease: 15 * time.Second}, lease{"12s", "ok", 80}, ""},
		"first seen late": {holdfast.Holder{Left: 3 * time.Second, Lease: 15 * time.Second}, lease{"3s", "thin", 20},
			"has not renewed for 12s of a lease of 15s"},
		"bounded":       {holdfast.Holder{Left: 6 * time.Second}, lease{"6s", "ok", 10}, ""},
		"over":          {holdfast.Holder{Left: 0, Lease: 15 * time.Second}, lease{"0s", "over", 0}, "has not renewed"},
		"unknown, over": {holdfast.Holder{Left: 0}, lease{"0s", "over", 0}, "is about to free"},
		"kept":          {holdfast.Holder{Left: 6 * time.Second, Kept: true}, lease{"6s", "kept", 10}, ""},
		"for years": {holdfast.Holder{Left: 90_000 * time.Hour, Lease: 100_000 * time.Hour},
			lease{"3750d 0h", "ok", 90}, ""},
	} {
		c.h.ID, c.h.Host, c.h.Permits = "a", "host", 1
		if got := s.leaseOf(&c.h); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		text, _ := s.why(&holdfast.Record{Name: "n", Kind: "lock", Holders: []holdfast.Holder{c.h}})
		if c.says == "" && strings.Contains(text, "renew") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A deadlock that a newer record does not show is not told of it.
func TestDeadlockOver(t *testing.T) {
	records := build(t, time.Minute, "a: p1 | p2", "b: p2 | p1")
	s := &snapshot{records: records, graph: newGraph(records, time.Now())}
	newer := records[0]
	if text, bad := s.why(&newer); !bad || !strings.HasPrefix(text, "Deadlock") {
		t.Error(text)
	}
	newer.Holders, newer.Waiters, newer.Waiting = newer.Waiters, nil, 0
	if text, bad := s.why(&newer); bad || strings.Contains(text, "Deadlock") {
		t.Error(text)
	}
}

// A record that was damaged when it was last read is not called free because it cannot be read now.
func TestDamagedAndUnread(t *testing.T) {
	c, err := holdfast.New(t.Context(), &frozen{Backend: memlock.New()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	last := &snapshot{at: time.Now(), graph: &graph{}, records: []holdfast.Record{{Name: "unread", Damaged: "rubbish"}},
		index: map[string]int{"unread": 0}}
	h := &console{c: c, reader: &reader{c: c, o: &Options{Every: time.Minute}, last: last}, looks: &looks{c: c}}
	w := httptest.NewRecorder()
	h.routes().ServeHTTP(w, httptest.NewRequest("GET", "/lock?name=unread", nil))
	if page := w.Body.String(); !strings.Contains(page, "rubbish") || strings.Contains(page, "Nobody uses") ||
		!strings.Contains(page, "Since then") {
		t.Error(page)
	}
}

// Elections whose candidates have no name are not denied.
func TestNamelessElection(t *testing.T) {
	last := &snapshot{at: time.Now(), graph: &graph{}, records: build(t, time.Minute, "api: p1 | p2")}
	h := &console{reader: &reader{o: &Options{Every: time.Minute}, last: last}}
	w := httptest.NewRecorder()
	h.routes().ServeHTTP(w, httptest.NewRequest("GET", "/elections", nil))
	if page := w.Body.String(); strings.Contains(page, "No election") || !strings.Contains(page, "look like locks") {
		t.Error(page)
	}
}

// The page of a name with many holders has a bounded length.
func TestManyHolders(t *testing.T) {
	r := build(t, time.Minute, "s/5000: p1 |")[0]
	for i := range 2999 {
		h := r.Holders[0]
		h.ID, h.Token, h.Lease = fmt.Sprint("more", i), uint64(i+2), time.Minute // not renewed
		r.Holders = append(r.Holders, h)
	}
	r.Kind, r.Limit = "lock", 0
	s := &snapshot{graph: &graph{}}
	b := s.lockPage(&r, time.Now(), true)
	if len(b.Holders) != maxCards || b.Held != 3000 || len(b.Why) > 1000 {
		t.Errorf("%d of %d holders, %d bytes", len(b.Holders), b.Held, len(b.Why))
	}
	var out strings.Builder
	if err := pages().ExecuteTemplate(&out, "lock.html", &page{Body: b}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "3000 holders") || !strings.Contains(text, "shows the first 100") {
		t.Error("the page does not say that there are more")
	}
}

// Grants at too few servers of a quorum are on the list and on the page of the name, without a form to break them.
func TestPartialIsShown(t *testing.T) {
	r := build(t, time.Minute, "x: p1 |")[0]
	r.Partial, r.Holders = r.Holders, nil
	r.Partial[0].Partial = true
	s := &snapshot{graph: &graph{}}
	x := s.row(&r, time.Now(), false)
	if !x.HasOne || len(x.Flags) != 1 || x.Flags[0].Text != "too few servers" {
		t.Errorf("the row: %+v", x)
	}
	b := s.lockPage(&r, time.Now(), true)
	if len(b.Holders) != 1 || b.Holders[0].Break != "" || b.Held != 0 {
		t.Errorf("the page: %+v", b)
	}
	var out strings.Builder
	if err := pages().ExecuteTemplate(&out, "lock.html", &page{Body: b}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Grants at too few servers", "too few servers</span>"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}
