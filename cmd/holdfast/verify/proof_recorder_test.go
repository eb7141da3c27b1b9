package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// played is a session with scripted answers.
type played struct {
	driver.Session
	reply   driver.Reply
	changes []driver.Change
	err     error
	asked   int64 // when the exchange arrived
}

// playedTTL is long, so that a busy machine does not stand still for a part of it.
const playedTTL = time.Minute

func (p *played) TTL() time.Duration { return playedTTL }

func (p *played) Acquire(context.Context, *driver.Request) (driver.Reply, error) {
	p.asked = history.Now()
	return p.reply, p.err
}

func (p *played) Renew(context.Context, []driver.Hold) ([]driver.Change, error) {
	p.asked = history.Now()
	return p.changes, p.err
}

// stage is an attempt at a played store.
type stage struct {
	t *testing.T
	p *played
	s *recordedSession
	a *attempt
}

func newStage(t *testing.T) *stage {
	p := &played{}
	w := newProofRecorder(nil, nil, "0")
	return &stage{t, p, &recordedSession{p, w}, &attempt{id: "a", loop: &loop{}}}
}

// acquire plays an answer to an Acquire, and returns bounds of its send time.
func (g *stage) acquire(id string, reply driver.Reply, err error) (before, arrived int64) {
	g.p.reply, g.p.err = reply, err
	before = history.Now()
	ctx := context.WithValue(context.Background(), attemptKey{}, g.a)
	if got, gerr := g.s.Acquire(ctx, &driver.Request{ID: id, Wait: true}); got != reply || !errors.Is(gerr, err) {
		g.t.Errorf("the answer has changed: %+v, %v", got, gerr)
	}
	return before, g.p.asked
}

// renew plays an answer to a Renew.
func (g *stage) renew(h driver.Hold, err error, changes ...driver.Change) (before, arrived int64) {
	g.p.changes, g.p.err = changes, err
	before = history.Now()
	if _, gerr := g.s.Renew(context.Background(), []driver.Hold{h}); !errors.Is(gerr, err) {
		g.t.Error(gerr)
	}
	return before, g.p.asked
}

func (g *stage) since(what string, token uint64, before, arrived int64) {
	g.t.Helper()
	if from := g.a.since(token); from < before || from > arrived {
		g.t.Errorf("%s: it counts from %d; want %d to %d", what, from, before, arrived)
	}
}

// A grant counts from when the exchange that proved it was sent, never from later.
func TestSince(t *testing.T) {
	place := driver.Hold{Name: "x", ID: "s-1"}
	t.Run("answer", func(t *testing.T) {
		g := newStage(t)
		before, arrived := g.acquire("s-1", driver.Reply{Token: 7}, nil)
		g.since("the answer", 7, before, arrived)
		g.renew(driver.Hold{Name: "x", ID: "s-1", Token: 7}, nil)
		g.since("the answer, after a renewal", 7, before, arrived)
	})
	t.Run("stale", func(t *testing.T) {
		g := newStage(t)
		before, arrived := g.acquire("s-1", driver.Reply{Token: 7, Stale: time.Hour}, nil)
		g.since("an answer that proves nothing new", 7, before-int64(time.Hour), arrived-int64(time.Hour))
	})
	t.Run("push", func(t *testing.T) {
		g := newStage(t)
		before, arrived := g.acquire("s-1", driver.Reply{Ahead: 1}, nil)
		g.since("a push", 9, before, arrived)
		before, arrived = g.renew(place, nil)
		g.since("a push after a renewal", 9, before, arrived)
		g.renew(place, nil, driver.Change{State: driver.Unknown})
		g.renew(place, nil, driver.Change{State: driver.Gone})
		g.renew(place, driver.ErrUncertain)
		g.acquire("s-1", driver.Reply{}, driver.ErrUncertain)
		g.since("a push after renewals that proved nothing", 9, before, arrived)
		before, arrived = g.renew(place, nil, driver.Change{State: driver.Waiting, Ahead: 2})
		g.since("a push after a report of the place", 9, before, arrived)
	})
	t.Run("renewal", func(t *testing.T) {
		g := newStage(t)
		g.acquire("s-1", driver.Reply{}, nil)
		before, arrived := g.renew(place, nil, driver.Change{State: driver.Granted, Token: 9})
		g.since("the grant in a renewal", 9, before, arrived)
	})
	t.Run("again", func(t *testing.T) { // another exchange confirms a grant that came too late
		g := newStage(t)
		g.acquire("s-1", driver.Reply{Token: 7}, nil)
		before, arrived := g.acquire("s-1", driver.Reply{Token: 7}, nil)
		g.since("the second answer", 7, before, arrived)
	})
	t.Run("another session", func(t *testing.T) {
		g := newStage(t)
		g.acquire("s-1", driver.Reply{}, nil)
		before, arrived := g.acquire("t-1", driver.Reply{}, nil)
		g.renew(place, nil) // of an ID that no attempt has
		g.since("a push to the new session", 9, before, arrived)
		if len(g.s.w.of("s-1")) > 0 || !slices.Equal(g.s.w.of("t-1"), []*attempt{g.a}) {
			t.Error("it is known by its old ID")
		}
		g.s.w.rename(g.a, "", false)
		if n := len(g.s.w.attempts); n != 0 {
			t.Errorf("%d attempts remain", n)
		}
	})
}

// A renewal proves the leases of all readers that share a grant. Of the calls that have one grant after the
// other, or one place, it proves only that of the last.
func TestProofOfASharedGrant(t *testing.T) {
	for _, mode := range []holdfast.Mode{holdfast.ModeShared, holdfast.ModeExclusive} {
		g := newStage(t)
		gaveUp, next := g.a, &attempt{id: "b", loop: &loop{}}
		g.acquire("s-1", driver.Reply{}, nil)
		ended := func(a *attempt, e holdfast.WaitEnd) {
			g.s.w.waitEnded(context.WithValue(context.Background(), attemptKey{}, a), e)
		}
		ended(gaveUp, holdfast.WaitEnd{Err: driver.ErrUncertain})
		ended(next, holdfast.WaitEnd{ID: "s-1", Token: 7, Mode: mode})
		last := &attempt{id: "c", loop: &loop{}}
		ended(last, holdfast.WaitEnd{ID: "s-1", Token: 7, Mode: mode})
		want := []*attempt{next, last}
		if mode == holdfast.ModeExclusive {
			want = want[1:]
		}
		before, arrived := g.renew(driver.Hold{Name: "x", ID: "s-1", Token: 7}, nil)
		for _, a := range []*attempt{gaveUp, next, last} {
			from := a.since(1)
			if proved := from >= before && from <= arrived; proved != slices.Contains(want, a) {
				t.Errorf("%s, attempt %s: proved: %v", mode, a.id, proved)
			}
		}
		for _, a := range []*attempt{next, last} {
			g.s.w.rename(a, "", false)
		}
		if n := len(g.s.w.attempts); n != 0 {
			t.Errorf("%d requests remain", n)
		}
	}
}

// A place in the queue that may have expired does not count; one that the store dropped does.
func TestPlaceLost(t *testing.T) {
	for _, old := range []bool{false, true} {
		for _, how := range []string{"gone", "session"} {
			g := newStage(t)
			g.acquire("s-1", driver.Reply{}, nil)
			g.a.queuedNow()
			if g.a.queuedSince() == 0 || g.a.loop.waiting.Load() != g.a.call {
				t.Fatal("it has no place in the queue")
			}
			if old {
				g.a.proof -= int64(playedTTL)
			}
			if how == "gone" {
				g.renew(driver.Hold{Name: "x", ID: "s-1"}, nil, driver.Change{State: driver.Gone})
			} else {
				g.acquire("t-1", driver.Reply{}, nil)
			}
			if remembered := g.a.queuedSince() != 0; remembered == old {
				t.Errorf("%s, not proved for a TTL %v: the place is remembered: %v", how, old, remembered)
			}
		}
	}
}

// An error of the store that leaves the outcome open is not recorded as a refusal.
func TestUnclear(t *testing.T) {
	for _, c := range []struct {
		err  error
		open bool
	}{
		{driver.ErrInvalid, false}, {driver.ErrKind, false}, {driver.ErrRefused, false},
		{fmt.Errorf("x: %w", driver.ErrClosed), false},
		{driver.ErrUncertain, true}, {driver.ErrUnavailable, true}, {errors.New("other"), true},
	} {
		g := newStage(t)
		g.acquire("s-1", driver.Reply{}, c.err)
		if g.a.unclear() != c.open {
			t.Errorf("%v: open %v", c.err, !c.open)
		}
		g.acquire("s-1", driver.Reply{}, driver.ErrRefused)
		if g.a.unclear() != c.open {
			t.Errorf("%v, then a refusal: open %v", c.err, !c.open)
		}
	}
	g := newStage(t)
	g.acquire("s-1", driver.Reply{}, nil)
	if !g.a.unclear() {
		t.Error("the attempt is certain, but it may have got the lock after it joined the queue")
	}
}

// The end of trust is the client's: the TTL less a tenth, from the latest proof.
func TestLapsed(t *testing.T) {
	g := newStage(t)
	before, arrived := g.acquire("s-1", driver.Reply{Token: 7}, nil)
	trust := int64(playedTTL * 9 / 10)
	if at := g.a.lapsed(); at < before+trust || at > arrived+trust {
		t.Errorf("%d", at)
	}
	before, arrived = g.renew(driver.Hold{Name: "x", ID: "s-1", Token: 7}, nil)
	if at := g.a.lapsed(); at < before+trust || at > arrived+trust {
		t.Errorf("renewed: %d", at)
	}
}

// A place not proved for a TTL may be another one: there is no promise of order for the old one.
func TestPlaceMayHaveRunOut(t *testing.T) {
	for name, c := range map[string]struct {
		silent time.Duration
		kept   bool
	}{"for a while": {playedTTL / 2, true}, "for a TTL": {playedTTL, false}} {
		t.Run(name, func(t *testing.T) {
			g := newStage(t)
			g.acquire("s-1", driver.Reply{}, nil)
			g.a.queuedNow()
			old := history.Now() - int64(c.silent)
			g.a.mu.Lock()
			g.a.proof, g.a.queued = old, old
			g.a.mu.Unlock()
			if at := g.a.queuedSince(); c.kept != (at == old) || !c.kept && at != 0 {
				t.Errorf("place since %d at the end; want %d", at, old)
			}
			for how, again := range map[string]func() (before, arrived int64){
				"asked again": func() (int64, int64) { return g.acquire("s-1", driver.Reply{}, nil) },
				"renewed":     func() (int64, int64) { return g.renew(driver.Hold{Name: "x", ID: "s-1"}, nil) },
			} {
				g.a.mu.Lock()
				g.a.proof, g.a.queued = old, old
				g.a.mu.Unlock()
				before, _ := again()
				if at := g.a.queuedSince(); c.kept != (at == old) || !c.kept && at < before {
					t.Errorf("place reported at %d; %s at %d, the old one dates from %d", at, how, before, old)
				}
			}
		})
	}
}
