package sqltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// TellsOnlyWhatIsWritten breaks the connection at each statement of each operation, with each kind
// of break. It checks that nobody is notified of a grant that is not on record. The record must be
// as before or after the operation, and a repeated call completes it (R5, R13). params are added to
// dsn for the connections that break; admin leads to the same tables, and all others use it.
func TellsOnlyWhatIsWritten(t *testing.T, dialect func() sqllock.Dialect, admin *sql.DB, dsn, params string,
	breaks ...Break) {
	broken := OpenBreaking(t, admin, dsn+params)
	x := &side{b: sqllock.New(broken.DB, dialect(), &sqllock.Config{Listen: listens(dialect(), admin)})}
	y := &side{b: sqllock.New(admin, dialect(), nil)}
	for i, s := range []*side{x, y} {
		defer func() { _ = s.b.Close() }()
		s.session = open(t, s.b, fmt.Sprint("side", i))
	}
	cases, prefix := 0, "told-"+strings.ToLower(rand.Text()[:8])
	for what, prepare := range operations {
		begin := func() *scene {
			cases++
			s := &scene{t: t, admin: admin, x: x, y: y, name: fmt.Sprintf("%s/%d", prefix, cases), roles: map[string]string{}}
			s.own = open(t, x.b, fmt.Sprint("own", cases))
			return s
		}
		s := begin()
		do := prepare(s)
		before := s.summary()
		if err := repeated(t.Context(), do); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		after := s.summary()
		for pass := range testenv.Rounds(1, len(breaks)) {
			for n := 1; ; n++ {
				how := breaks[(pass+n)%len(breaks)]
				s := begin()
				do := prepare(s)
				broken.Arm(n, how)
				err := do(t.Context())
				at := broken.Disarm()
				s.check(fmt.Sprintf("%s, %v: %q", what, how, head(at)), before, after, err)
				if at == "" {
					break
				}
				err = repeated(t.Context(), do)
				if err != nil && !driver.IsOver(err) && !errors.Is(err, driver.ErrClosed) {
					t.Errorf("%s, again after %v: %v", what, how, err)
				}
				if got := s.summary(); got != after && what != "close" {
					t.Errorf("%s, again after %v at %q: the record is %s; want %s", what, how, head(at), got, after)
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}

func head(text string) string { return text[:min(len(text), 60)] }

// listens returns the pool on which x listens, if its own connections cannot.
func listens(d sqllock.Dialect, db *sql.DB) *sql.DB {
	if d.Name() == "postgres" {
		return db
	}
	return nil
}

func open(t *testing.T, b *sqllock.Server, id string) driver.Session {
	t.Helper()
	s, err := b.Open(t.Context(), driver.SessionConfig{ID: id, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// side is a process.
type side struct {
	b       *sqllock.Server
	session driver.Session
}

// scene is one name and its clients: own works on connections that break, x is in the same process,
// and y in another.
type scene struct {
	t     *testing.T
	admin *sql.DB
	x, y  *side
	own   driver.Session
	name  string
	roles map[string]string // by request ID
	ears  []ear
}

type ear struct {
	id   string
	wake <-chan uint64
	y    bool
}

func (s *scene) request(role string, mode driver.Mode) *driver.Request {
	r := &driver.Request{ID: strings.NewReplacer("/", "-", " ", "-").Replace(s.name + "-" + role), Name: s.name,
		Mode: mode, N: 1, Wait: true}
	if mode == driver.Permits {
		r.Limit = 2
	}
	s.roles[r.ID] = role
	return r
}

func (s *scene) ask(of driver.Session, role string, mode driver.Mode) driver.Hold {
	s.t.Helper()
	r := s.request(role, mode)
	rep, err := of.Acquire(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	if rep.Token == 0 {
		s.ears = append(s.ears, ear{r.ID, rep.Wake, of == s.y.session})
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
}

// await waits for the latch.
func (s *scene) await(of driver.Session, role string) {
	s.t.Helper()
	r := s.request(role, driver.Exclusive)
	rep, err := of.Await(s.t.Context(), s.name, r.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ears = append(s.ears, ear{r.ID, rep.Wake, of == s.y.session})
}

// expire ends the lease of the one exclusive holder.
func (s *scene) expire() { s.t.Helper(); expire(s.t, s.admin, s.name) }

// expire ends the lease of the one exclusive holder of name. in is a pool or a transaction.
func expire(t *testing.T, in interface {
	Exec(query string, args ...any) (sql.Result, error)
}, name string) {
	t.Helper()
	if _, err := in.Exec("UPDATE hf_lock SET expires = 1, keep = 0, busy = 1, ver = ver + 1 WHERE name = '" + name +
		"'"); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) record() driver.Record {
	s.t.Helper()
	rec, err := s.y.b.Inspect(s.t.Context(), s.name)
	if err != nil {
		s.t.Fatal(err)
	}
	return rec
}

// summary describes the record, without what differs between runs of an operation.
func (s *scene) summary() string {
	s.t.Helper()
	rec := s.record()
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "kind %d of %d, count %d;", rec.Kind, rec.Limit, rec.Count)
	for _, h := range rec.Holders {
		_, _ = fmt.Fprintf(&b, " %s holds %d of mode %d (%v)", cmp.Or(s.roles[h.ID], h.ID), h.N, h.Mode, h.Kept)
	}
	for _, w := range rec.Waiters {
		_, _ = fmt.Fprintf(&b, " %s waits", cmp.Or(s.roles[w.ID], w.ID))
	}
	return b.String()
}

// check compares all notifications with the record.
func (s *scene) check(what, before, after string, err error) {
	s.t.Helper()
	if s.elsewhere() {
		s.mark()
	}
	rec := s.record()
	for _, e := range s.ears {
		var token uint64
		select {
		case token = <-e.wake:
		default:
		}
		granted := rec.Kind == driver.Latch && rec.Count == 0
		for _, h := range rec.Holders {
			granted = granted || h.ID == e.id && h.Token == token
		}
		if token != 0 && !granted {
			s.t.Errorf("%s: %s was notified of token %d, which is not on record: %s", what, s.roles[e.id], token, s.summary())
		}
	}
	switch got := s.summary(); {
	case err == nil && got != after:
		s.t.Errorf("%s: it succeeded, and the record is %s; want %s", what, got, after)
	case got != before && got != after:
		s.t.Errorf("%s: the record is %s; want %s or %s", what, got, before, after)
	}
}

func (s *scene) elsewhere() bool {
	for _, e := range s.ears {
		if e.y {
			return true
		}
	}
	return false
}

// mark returns when y has received all notifications sent until now: they arrive in order.
func (s *scene) mark() {
	s.t.Helper()
	m := &scene{t: s.t, admin: s.admin, x: s.x, y: s.y, name: s.name + "/mark", roles: map[string]string{}}
	h := m.ask(s.x.session, "first", driver.Exclusive)
	m.ask(s.y.session, "second", driver.Exclusive)
	if err := s.x.session.Release(s.t.Context(), h, 0); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-m.ears[0].wake:
	case <-time.After(30 * time.Second):
		s.t.Fatal("no notification of a hand-over")
	}
}

// operations are the operations of own. Each prepares a scene and returns the step that breaks; the
// step may be repeated.
var operations = map[string]func(s *scene) func(context.Context) error{
	"acquire":          func(s *scene) func(context.Context) error { return s.acquires(driver.Exclusive) },
	"acquire a share":  func(s *scene) func(context.Context) error { return s.acquires(driver.Shared) },
	"acquire a permit": func(s *scene) func(context.Context) error { return s.acquires(driver.Permits) },
	"join": func(s *scene) func(context.Context) error {
		s.ask(s.y.session, "holder", driver.Exclusive)
		return s.acquires(driver.Exclusive)
	},
	"acquire with readers": func(s *scene) func(context.Context) error {
		s.ask(s.y.session, "reader", driver.Shared)
		return s.acquires(driver.Shared)
	},
	"acquire after a dead holder": func(s *scene) func(context.Context) error {
		s.ask(s.y.session, "holder", driver.Exclusive)
		s.ask(s.x.session, "here", driver.Exclusive)
		s.expire()
		return s.acquires(driver.Exclusive)
	},
	"release":          func(s *scene) func(context.Context) error { return s.releases(driver.Exclusive, 0) },
	"release and keep": func(s *scene) func(context.Context) error { return s.releases(driver.Exclusive, time.Hour) },
	"hand over here":   func(s *scene) func(context.Context) error { return s.releases(driver.Exclusive, 0, s.x) },
	"hand over there":  func(s *scene) func(context.Context) error { return s.releases(driver.Exclusive, 0, s.y) },
	"hand over, more wait": func(s *scene) func(context.Context) error {
		return s.releases(driver.Exclusive, 0, s.x, s.y)
	},
	"release a share":       func(s *scene) func(context.Context) error { return s.releases(driver.Shared, 0, s.y, s.x) },
	"release a permit":      func(s *scene) func(context.Context) error { return s.releases(driver.Permits, 0) },
	"give back a permit":    func(s *scene) func(context.Context) error { return s.givesBack() },
	"release, readers wait": func(s *scene) func(context.Context) error { return s.readers(s.free) },
	"downgrade":             func(s *scene) func(context.Context) error { return s.readers(s.downgrade) },
	"renew": func(s *scene) func(context.Context) error {
		return s.renews(s.ask(s.own, "own", driver.Exclusive))
	},
	"renew a share": func(s *scene) func(context.Context) error {
		return s.renews(s.ask(s.own, "own", driver.Shared))
	},
	"renew after a dead one": func(s *scene) func(context.Context) error {
		s.ask(s.y.session, "holder", driver.Exclusive)
		s.ask(s.y.session, "there", driver.Exclusive)
		place := s.ask(s.own, "own", driver.Exclusive)
		s.expire()
		return s.renews(place)
	},
	"adopt": func(s *scene) func(context.Context) error {
		h := s.ask(s.y.session, "holder", driver.Exclusive)
		id := s.request("own", driver.Exclusive).ID
		return func(ctx context.Context) error { return s.own.Adopt(ctx, h, id, "") }
	},
	"break": func(s *scene) func(context.Context) error {
		h := s.ask(s.y.session, "holder", driver.Exclusive)
		s.ask(s.x.session, "here", driver.Exclusive)
		s.ask(s.y.session, "there", driver.Exclusive)
		return func(ctx context.Context) error { return s.x.b.Break(ctx, s.name, h.Token) }
	},
	"limit": func(s *scene) func(context.Context) error {
		s.ask(s.y.session, "one", driver.Permits)
		s.ask(s.y.session, "two", driver.Permits)
		s.ask(s.x.session, "here", driver.Permits)
		s.ask(s.y.session, "there", driver.Permits)
		return func(ctx context.Context) error { return s.x.b.SetLimit(ctx, s.name, 4) }
	},
	"cancel a place": func(s *scene) func(context.Context) error {
		s.ask(s.y.session, "holder", driver.Exclusive)
		return s.cancels(s.ask(s.own, "own", driver.Exclusive))
	},
	"cancel a grant": func(s *scene) func(context.Context) error {
		h := s.ask(s.own, "own", driver.Exclusive)
		s.ask(s.x.session, "here", driver.Exclusive)
		s.ask(s.y.session, "there", driver.Exclusive)
		return s.cancels(h)
	},
	"close": func(s *scene) func(context.Context) error {
		s.ask(s.own, "own", driver.Exclusive)
		s.ask(s.y.session, "there", driver.Exclusive)
		return s.own.Close
	},
	"latch": func(s *scene) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.own.SetCount(ctx, s.name, 2); return err }
	},
	"count down": func(s *scene) func(context.Context) error { return s.counts(2) },
	"open":       func(s *scene) func(context.Context) error { return s.counts(1) },
	"remove": func(s *scene) func(context.Context) error {
		s.counts(1)
		return func(ctx context.Context) error { return s.x.b.RemoveLatch(ctx, s.name) }
	},
}

func (s *scene) acquires(mode driver.Mode) func(context.Context) error {
	r := s.request("own", mode)
	return func(ctx context.Context) error {
		rep, err := s.own.Acquire(ctx, r)
		if err == nil && rep.Token != 0 {
			s.ears = append(s.ears, ear{r.ID, answered(rep.Token), false})
		}
		return err
	}
}

// answered returns an answer as a notification.
func answered(token uint64) <-chan uint64 {
	c := make(chan uint64, 1)
	c <- token
	return c
}

func (s *scene) releases(mode driver.Mode, keep time.Duration, waiters ...*side) func(context.Context) error {
	h := s.ask(s.own, "own", mode)
	for i, w := range waiters {
		s.ask(w.session, fmt.Sprint("waiter ", i), driver.Exclusive)
	}
	return func(ctx context.Context) error { return s.own.Release(ctx, h, keep) }
}

func (s *scene) readers(do func(driver.Hold) func(context.Context) error) func(context.Context) error {
	h := s.ask(s.own, "own", driver.Exclusive)
	s.ask(s.x.session, "here", driver.Shared)
	s.ask(s.y.session, "there", driver.Shared)
	return do(h)
}

func (s *scene) free(h driver.Hold) func(context.Context) error {
	return func(ctx context.Context) error { return s.own.Release(ctx, h, 0) }
}

func (s *scene) downgrade(h driver.Hold) func(context.Context) error {
	return func(ctx context.Context) error { return s.own.Downgrade(ctx, h) }
}

func (s *scene) renews(h driver.Hold) func(context.Context) error {
	return func(ctx context.Context) error {
		changes, err := s.own.Renew(ctx, []driver.Hold{h})
		for _, ch := range changes {
			switch ch.State {
			case driver.Granted:
				s.ears = append(s.ears, ear{h.ID, answered(ch.Token), false})
			case driver.Unknown:
				err = errors.Join(err, driver.ErrUncertain)
			}
		}
		return err
	}
}

func (s *scene) cancels(h driver.Hold) func(context.Context) error {
	return func(ctx context.Context) error { return s.own.Cancel(ctx, h.Name, h.ID) }
}

func (s *scene) counts(n int64) func(context.Context) error {
	s.t.Helper()
	set := func() error { _, err := s.y.session.SetCount(s.t.Context(), s.name, n); return err }
	if err := testenv.Repeated(set); err != nil {
		s.t.Fatal(err)
	}
	s.await(s.x.session, "here")
	s.await(s.y.session, "there")
	return func(ctx context.Context) error { _, err := s.own.CountDown(ctx, s.name, "a"); return err }
}
