package sqllock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
	"pgregory.net/rapid"
)

// model is the store as internal/rule has it, and the store itself, side by side.
type model struct {
	t        *rapid.T
	clock    *clock
	b        *SQLite
	sessions []*session
	entries  map[string]*rule.Entry
	reqs     []*driver.Request
	tokens   map[*driver.Request]uint64
	wakes    map[string]<-chan uint64
	ids      int
}

const modelTTL = 1000 * time.Millisecond

func (m *model) now() time.Duration { return time.Duration(m.clock.now.Load()) }

func (m *model) entry(name string) *rule.Entry {
	if m.entries[name] == nil {
		m.entries[name] = &rule.Entry{Mint: func(last uint64) uint64 {
			// Above the floor and the wall clock, as the store counts.
			return max(last+1, uint64(m.clock.wall.Load()))
		}}
	}
	return m.entries[name]
}

// granted checks that those whom the rule grants to are woken with the same token.
func (m *model) granted(grants []rule.Grant) {
	for _, g := range grants {
		wake := m.wakes[g.ID]
		if wake == nil {
			continue
		}
		select {
		case token := <-wake:
			if token != g.Token {
				m.t.Fatalf("%s woken with %d; the rule granted %d", g.ID, token, g.Token)
			}
		default:
			// Another transaction of the same step may have granted it: found by Inspect.
		}
		delete(m.wakes, g.ID)
	}
}

func (m *model) same(what string, got, want any) {
	m.t.Helper()
	if !reflect.DeepEqual(got, want) {
		m.t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func kindOf(err error) error {
	for _, e := range []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrInvalid} {
		if errors.Is(err, e) {
			return e
		}
	}
	return err
}

func (m *model) anySession() *session { return m.sessions[rapid.IntRange(0, 2).Draw(m.t, "session")] }

func (m *model) anyHold() (*session, *driver.Request, driver.Hold) {
	if len(m.reqs) == 0 {
		m.t.Skip("no requests yet")
	}
	r := m.reqs[rapid.IntRange(0, len(m.reqs)-1).Draw(m.t, "request")]
	return m.anySession(), r, holdOf(r, m.tokens[r])
}

func (m *model) acquire(r *driver.Request, s *session) {
	got, err := s.Acquire(context.Background(), r)
	e := m.entry(r.Name)
	token, ahead, grants, werr := e.Acquire(m.now(), r, s.id, modelTTL)
	m.same("Acquire error", kindOf(err), kindOf(werr))
	m.same("Acquire token", got.Token, token)
	if werr == nil && token == 0 {
		m.same("Acquire ahead", got.Ahead, ahead)
		m.same("Acquire retry", got.Retry, e.Retry(m.now()))
		var holder *driver.Holder
		if len(e.Holds) > 0 {
			h := e.Holds[0].Describe(m.now())
			holder = &h
		}
		m.same("Acquire holder", got.Holder, holder)
	}
	if token != 0 {
		m.tokens[r] = token
	}
	if delete(m.wakes, r.ID); got.Wake != nil {
		m.wakes[r.ID] = got.Wake
	}
	m.granted(grants)
}

func (m *model) newRequest(t *rapid.T) {
	m.ids++
	r := &driver.Request{
		ID: fmt.Sprintf("r%d", m.ids), Mode: rapid.SampledFrom([]driver.Mode{driver.Exclusive, driver.Shared, driver.Permits}).Draw(t, "mode"),
		N: 1, Wait: rapid.Bool().Draw(t, "wait"), Info: "i",
		MinHold: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 700, 1500}).Draw(t, "minhold")) * time.Millisecond,
	}
	// Mostly names that go with the mode, so that histories are not full of refusals.
	r.Name = rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "name")
	if r.Mode == driver.Permits {
		r.Limit = rapid.SampledFrom([]int{5, 5, 5, 3}).Draw(t, "limit")
		r.N = rapid.IntRange(1, r.Limit).Draw(t, "n")
		r.Name = rapid.SampledFrom([]string{"s", "s", "s", "y"}).Draw(t, "name")
	}
	m.reqs = append(m.reqs, r)
	m.acquire(r, m.anySession())
}

func (m *model) renew(t *rapid.T) {
	s, r, h := m.anyHold()
	if rapid.Bool().Draw(t, "as a place") {
		h.Token = 0
	}
	news, err := s.Renew(context.Background(), []driver.Hold{h})
	if err != nil {
		t.Fatal(err)
	}
	ch, grants := m.entry(r.Name).Renew(m.now(), h.ID, h.Token, modelTTL)
	var got driver.Change
	if len(news) > 0 {
		got = news[0]
	}
	m.same("Renew", got, ch)
	if ch.State == driver.Granted {
		m.tokens[r] = ch.Token
	}
	m.granted(grants)
}

func (m *model) check(t *rapid.T) {
	for _, name := range []string{"x", "y", "s"} {
		got, err := m.b.Inspect(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		e := m.entry(name)
		m.granted(e.Advance(m.now()))
		m.same("Inspect "+name, got, e.Record(m.now(), name))
		for _, r := range m.reqs {
			for i := range e.Holds {
				if e.Holds[i].ID == r.ID && !e.Holds[i].Kept {
					m.tokens[r] = e.Holds[i].Token
				}
			}
		}
	}
}

// TestSQLiteAgainstRule runs random histories of all verbs on the store and on
// internal/rule, and compares every reply and every state.
func TestSQLiteAgainstRule(t *testing.T) {
	path := 0
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path++
		m := &model{t: t, clock: &clock{}, entries: map[string]*rule.Entry{}, tokens: map[*driver.Request]uint64{}, wakes: map[string]<-chan uint64{}}
		m.clock.now.Store(int64(time.Hour))
		m.clock.wall.Store(1_700_000_000_000_000)
		b, err := OpenSQLite(fmt.Sprintf("%s/%d.db", dir, path), &SQLiteConfig{env: m.clock.env()})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		m.b = b
		for range 3 {
			s, err := b.Open(context.Background(), driver.SessionConfig{ID: newID(), TTL: modelTTL})
			if err != nil {
				t.Fatal(err)
			}
			m.sessions = append(m.sessions, s.(*session))
		}
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"acquire":  m.newRequest,
			"acquire2": m.newRequest,
			"again": func(t *rapid.T) {
				s, r, h := m.anyHold()
				if h.Token != 0 { // ids are unique for life: a grant that is over is not asked for again
					if e := m.entry(r.Name); !holds(e, r.ID) {
						t.Skip()
					}
				}
				m.acquire(r, s)
			},
			"renew": m.renew,
			"time": func(t *rapid.T) {
				d := rapid.IntRange(1, 1100).Draw(t, "ms")
				m.clock.now.Add(int64(d) * int64(time.Millisecond))
				m.clock.wall.Add(int64(d) * 1000)
			},
			"release": func(t *rapid.T) {
				s, r, h := m.anyHold()
				keep := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 900}).Draw(t, "keep")) * time.Millisecond
				err := s.Release(ctx, h, keep)
				grants, werr := m.entry(r.Name).Release(m.now(), h.ID, h.Token, keep)
				m.same("Release", kindOf(err), kindOf(werr))
				m.granted(grants)
			},
			"cancel": func(t *rapid.T) {
				s, r, _ := m.anyHold()
				if err := s.Cancel(ctx, r.Name, r.ID); err != nil {
					t.Fatal(err)
				}
				delete(m.wakes, r.ID)
				m.granted(m.entry(r.Name).Cancel(m.now(), r.ID))
			},
			"downgrade": func(t *rapid.T) {
				s, r, h := m.anyHold()
				grants, werr := m.entry(r.Name).Downgrade(m.now(), h.ID, h.Token)
				m.same("Downgrade", kindOf(s.Downgrade(ctx, h)), kindOf(werr))
				m.granted(grants)
			},
			"adopt": func(t *rapid.T) {
				s, r, h := m.anyHold()
				m.ids++
				id := rapid.SampledFrom([]string{fmt.Sprintf("r%d", m.ids), m.reqs[len(m.reqs)-1].ID}).Draw(t, "id")
				for range rapid.IntRange(1, 2).Draw(t, "times") {
					grants, werr := m.entry(r.Name).Adopt(m.now(), h.ID, h.Token, id, "i", s.id, modelTTL)
					m.same("Adopt", kindOf(s.Adopt(ctx, h, id, "i")), kindOf(werr))
					if m.granted(grants); werr == nil {
						r.ID = id
					}
				}
			},
			"break": func(t *rapid.T) {
				_, r, h := m.anyHold()
				grants, werr := m.entry(r.Name).Break(m.now(), h.Token)
				m.same("Break", kindOf(m.b.Break(ctx, r.Name, h.Token)), kindOf(werr))
				m.granted(grants)
			},
			"setlimit": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"s", "y"}).Draw(t, "name")
				limit := rapid.IntRange(1, 7).Draw(t, "limit")
				grants, werr := m.entry(name).SetLimit(m.now(), limit)
				m.same("SetLimit", kindOf(m.b.SetLimit(ctx, name, limit)), kindOf(werr))
				m.granted(grants)
			},
		})
		checkSums(t, b)
	})
}

func holds(e *rule.Entry, id string) bool {
	for i := range e.Holds {
		if e.Holds[i].ID == id && !e.Holds[i].Kept {
			return true
		}
	}
	return false
}
