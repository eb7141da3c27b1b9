package signs_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/internal/signs"
	"github.com/holdfast-lock/holdfast/memlock"
)

const ttl = 20 * time.Second

// cut is a store that a client can be cut off from.
type cut struct {
	driver.Backend
	off atomic.Bool
}

func (c *cut) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := c.Backend.Open(ctx, cfg)
	return &cutSession{s, c}, err
}

type cutSession struct {
	driver.Session
	c *cut
}

func (s *cutSession) Renew(ctx context.Context, h []driver.Hold) ([]driver.Change, error) {
	if s.c.off.Load() {
		return nil, driver.ErrUnavailable
	}
	return s.Session.Renew(ctx, h)
}

func (s *cutSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if s.c.off.Load() {
		return driver.ErrUnavailable
	}
	return s.Session.Release(ctx, h, keep)
}

func newClient(t *testing.T, b driver.Backend) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// look returns the one holder of x, or nil.
func look(t *testing.T, c *holdfast.Client) *holdfast.Holder {
	t.Helper()
	r, err := c.Inspect(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Holders) == 0 {
		return nil
	}
	return &r.Holders[0]
}

// A holder with a maximum hold is late only if its client is, and then it is found, unless the end is
// less than a lease away.
func TestLateWithMaxHold(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Second, ttl / 2, ttl * 9 / 10, ttl, ttl * 5 / 4, 2 * ttl, 5 * ttl} {
		for _, stop := range []time.Duration{-1, ttl / 7, ttl, 2*ttl + ttl/5, 4 * ttl} {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				b := &cut{Backend: store}
				c, reader := newClient(t, b), newClient(t, store)
				defer func() { _ = c.Close(context.Background()); _ = reader.Close(context.Background()) }()
				var opts []holdfast.Option
				if hold > 0 {
					opts = append(opts, holdfast.MaxHold(hold))
				}
				began := time.Now()
				if _, err := c.Mutex("x", opts...).TryLock(t.Context()); err != nil {
					t.Fatal(err)
				}
				found := time.Duration(0)
				for time.Since(began) < 6*ttl {
					now := time.Since(began)
					if stop >= 0 && now >= stop {
						b.off.Store(true)
					}
					h := look(t, reader)
					if h == nil {
						break
					}
					if signs.Late(h) {
						if stop < 0 || now < stop {
							t.Fatalf("MaxHold %v: a living holder is late after %v, with %v left", hold, now, h.Left)
						}
						found = max(found, now)
					}
					if ago, known := signs.Renewed(h); known && ago > ttl/3+ttl/20 && (stop < 0 || now < stop) {
						t.Fatalf("MaxHold %v: after %v, a living holder has renewed %v ago", hold, now, ago)
					}
					time.Sleep(ttl / 100)
				}
				if want := stop >= 0 && (hold == 0 || hold > stop+ttl+ttl/20); want && found == 0 {
					t.Errorf("MaxHold %v: a holder that stopped after %v was never found", hold, stop)
				}
			})
		}
	}
}

// A waiter for a lock with a maximum hold is not late while it lives.
func TestLateWaiter(t *testing.T) {
	for _, hold := range []time.Duration{time.Second, ttl / 2, ttl, 3 * ttl} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			b := &cut{Backend: store}
			c, reader := newClient(t, b), newClient(t, store)
			if _, err := reader.Mutex("x").TryLock(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.Mutex("x", holdfast.MaxHold(hold)).Lock(ctx)
			}()
			for range 300 {
				time.Sleep(ttl / 100)
				r, err := reader.Inspect(t.Context(), "x")
				if err != nil || len(r.Waiters) != 1 || signs.Late(&r.Waiters[0]) {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			cancel()
			<-done
			_ = c.Close(context.Background())
			_ = reader.Close(context.Background())
		})
	}
}

// A grant of the HTTP API is late when its program no longer sends heartbeats, and not before.
func TestLateProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, reader := newClient(t, store), newClient(t, store)
		s := httpapi.New(c, nil)
		session := ""
		post := func(path, body string) string {
			t.Helper()
			r := httptest.NewRequest("POST", "/v1/"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Holdfast-Session", session)
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code/100 != 2 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		_, rest, _ := strings.Cut(post("sessions", "{}"), `"session":"`)
		session, _, _ = strings.Cut(rest, `"`)
		_, rest, _ = strings.Cut(post("acquire", `{"request":1,"name":"x"}`), `"lease":"`)
		lease, _, _ := strings.Cut(rest, `"`)
		for range 9 {
			for range 10 {
				if h := look(t, reader); h == nil || signs.Late(h) {
					t.Fatalf("a program that lives is late: %+v", h)
				}
				time.Sleep(ttl / 30)
			}
			post("sessions/heartbeat", `{"leases":["`+lease+`"]}`)
		}
		stopped, found := time.Now(), false
		for h := look(t, reader); h != nil; h = look(t, reader) {
			if signs.Late(h) {
				if found = true; time.Since(stopped) <= ttl/3 {
					t.Fatalf("late %v after a heartbeat", time.Since(stopped))
				}
			}
			time.Sleep(ttl / 30)
		}
		if !found {
			t.Error("a program that has stopped was not found")
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		_ = c.Close(context.Background())
		_ = reader.Close(context.Background())
	})
}
