package postgres_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Releases do not wait for the disk, so a crash forgets some. These servers make it likely: the
// log is written only when somebody waits for that.
func forgetful(t *testing.T) (*testenv.PostgresServer, *sql.DB) {
	t.Helper()
	server := database(t, "fsync=on", "synchronous_commit=on", "wal_writer_delay=10s", "wal_writer_flush_after=0",
		"autovacuum=off", "bgwriter_delay=10s", "checkpoint_timeout=1h")
	return server, pool(t, server.DSN("postgres"))
}

// lost is a hand-over that the server has forgotten: a has released, b was told that it holds the
// lock, and c waits behind it; the server knows a as the holder.
type lost struct {
	server     *testenv.PostgresServer
	db         *sql.DB
	ttlA, ttlB time.Duration
	names      int

	a, b, c      *party
	name         string
	before, held driver.Hold
	asked        time.Time // b's last sign of life before it held the lock
	behind       *driver.Request
	wake         <-chan uint64
}

// begin brings it to the moment before the crash.
func (l *lost) begin(t *testing.T) {
	t.Helper()
	l.names++
	l.name = fmt.Sprintf("lost/%d", l.names)
	dsn := l.server.DSN("postgres")
	l.a, l.b, l.c = join(t, dsn, l.ttlA), join(t, dsn+"&application_name="+url.QueryEscape(l.name), l.ttlB), join(t, dsn, time.Hour)
	l.before = l.a.take(l.a.mutex(l.name))
	r := l.b.mutex(l.name)
	l.asked = time.Now()
	wake := l.b.queue(r)
	l.behind = l.c.mutex(l.name)
	l.wake = l.c.queue(l.behind)
	l.a.free(l.before)
	l.held = l.b.woken(r, wake)
}

// crash reports whether the server has forgotten the hand-over.
func (l *lost) crash(t *testing.T) bool {
	t.Helper()
	l.server.Kill()
	l.server.Start()
	return value[string](t, l.db, "SELECT hid FROM hf_lock WHERE name = $1", []byte(l.name)) == l.before.ID
}

// happen lets it happen; last is what comes just before the crash.
func (l *lost) happen(t *testing.T, last func()) {
	t.Helper()
	for range 10 {
		l.begin(t)
		last()
		if l.crash(t) {
			return
		}
	}
	t.Fatal("no hand-over was forgotten: the run proves nothing")
}

// served waits for c as a client would: it renews its place, which is how it learns what it was not
// told.
func (l *lost) served(t *testing.T) (h driver.Hold, at time.Time) {
	t.Helper()
	place := driver.Hold{Name: l.name, ID: l.behind.ID}
	until(t, "the next in line is served", func() bool {
		ch, err := renewed(l.c, place)
		if err != nil {
			t.Fatal(err)
		}
		h = driver.Hold{Name: l.name, ID: l.behind.ID, Token: ch.Token}
		return ch.State == driver.Granted
	})
	return h, time.Now()
}

// Until the time is over for which b may rely on what it was told, nobody gets in.
func TestForgottenHandOver(t *testing.T) {
	t.Parallel()
	l := &lost{ttlA: 2 * time.Second, ttlB: 6 * time.Second}
	l.server, l.db = forgetful(t)
	l.happen(t, func() {})
	h, at := l.served(t)
	if d := at.Sub(l.asked); d < l.ttlB {
		t.Errorf("another was let in %v after the holder's last sign of life; it may believe for %v", d, l.ttlB)
	}
	if h.Token <= l.held.Token {
		t.Errorf("token %d after %d", h.Token, l.held.Token)
	}
	if ch, err := renewed(l.b, l.held); err != nil || ch.State != driver.Gone {
		t.Errorf("who held it before: %+v, %v", ch, err)
	}
	l.c.free(h)
	// Whoever has released, which is forgotten as well, does not hold the line up: its Server hears of the
	// grant that makes up for the forgotten one, if it listens again, and gives that back.
	l.ttlB = time.Hour
	l.happen(t, func() { l.b.free(l.held) })
	until(t, "it listens again", func() bool {
		return len(l.server.Backends(listening+" AND application_name = '"+l.name+"'")) == 1
	})
	if h, _ := l.served(t); h.Token <= l.held.Token {
		t.Errorf("token %d after %d", h.Token, l.held.Token)
	}
}

// A holder whom the server has forgotten goes on as if nothing had been.
func TestForgottenHolderGoesOn(t *testing.T) {
	t.Parallel()
	l := &lost{ttlA: time.Minute, ttlB: time.Hour}
	l.server, l.db = forgetful(t)
	for what, f := range map[string]func(){
		"renews": func() {
			if ch, err := renewed(l.b, l.held); err != nil || ch.State != 0 {
				t.Errorf("Renew: %+v, %v", ch, err)
			}
		},
		"downgrades": func() {
			if err := l.b.Downgrade(limited(t), l.held); err != nil {
				t.Errorf("Downgrade: %v", err)
			}
		},
		"releases": func() {},
	} {
		l.happen(t, func() {})
		// Those behind look first: that must not matter.
		if ch, err := renewed(l.c, driver.Hold{Name: l.name, ID: l.behind.ID}); err != nil || ch.State == driver.Granted {
			t.Errorf("%s: the next in line: %+v, %v", what, ch, err)
		}
		f()
		once := l.a.mutex(l.name)
		once.Wait = false
		if rep := l.a.ask(once); rep.Token != 0 {
			t.Errorf("%s: granted to another beside it", what)
		}
		if err := l.b.Release(limited(t), l.held, 0); err != nil {
			t.Errorf("%s: Release: %v", what, err)
		}
		h, _ := l.served(t)
		if h.Token <= l.held.Token {
			t.Errorf("%s: token %d after %d", what, h.Token, l.held.Token)
		}
		l.c.free(h)
	}
}

// Tokens that are ahead of the clock (it was set back, or the tables come from elsewhere) grow over
// a crash as well.
func TestForgottenTokenAheadOfTheClock(t *testing.T) {
	t.Parallel()
	// The place of the forgotten holder lapses before the lease of its predecessor does, so what it was
	// told is told to the next.
	l := &lost{ttlA: 3 * time.Second, ttlB: 1500 * time.Millisecond}
	l.server, l.db = forgetful(t)
	dsn := l.server.DSN("postgres")
	for try := range 2 {
		name := fmt.Sprintf("ahead/%d", try)
		a, b, c := join(t, dsn, l.ttlA), join(t, dsn, l.ttlB), join(t, dsn, time.Hour)
		a.free(a.take(a.mutex(name)))
		run(t, l.db, "UPDATE hf_lock SET token = token + 1000000000000")
		held := a.take(a.mutex(name))
		r := b.mutex(name)
		wake := b.queue(r)
		behind := c.mutex(name)
		c.queue(behind)
		a.free(held)
		told := b.woken(r, wake)
		l.server.Kill()
		l.server.Start()
		l.c, l.name, l.behind = c, name, behind
		if h, _ := l.served(t); h.Token <= told.Token {
			t.Errorf("token %d after %d", h.Token, told.Token)
		}
	}
}
