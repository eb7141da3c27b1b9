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

// Releases do not wait for the disk, so a crash loses some. These settings make that likely: the
// server writes its log only when somebody waits for that.
func forgetful(t *testing.T) (*testenv.PostgresServer, *sql.DB) {
	t.Helper()
	server := database(t, "fsync=on", "synchronous_commit=on", "wal_writer_delay=10s", "wal_writer_flush_after=0",
		"autovacuum=off", "bgwriter_delay=10s", "checkpoint_timeout=1h")
	return server, pool(t, server.DSN("postgres"))
}

// lost is a hand-over that the server has lost: a has released, b was notified of its grant, and c
// is the next waiter; the server has a as the holder.
type lost struct {
	server     *testenv.PostgresServer
	db         *sql.DB
	ttlA, ttlB time.Duration
	names      int

	a, b, c      *party
	name         string
	before, held driver.Hold
	asked        time.Time // b's last call before it held the lock
	behind       *driver.Request
	wake         <-chan uint64
}

// begin runs up to the moment before the crash. It reports whether a's lease has lasted until then.
func (l *lost) begin(t *testing.T) bool {
	t.Helper()
	l.names++
	l.name = fmt.Sprintf("lost/%d", l.names)
	dsn := l.server.DSN("postgres")
	l.a, l.b, l.c = join(t, dsn, l.ttlA), join(t, dsn+"&application_name="+url.QueryEscape(l.name), l.ttlB), join(t, dsn,
		time.Hour)
	l.before = l.a.take(l.a.mutex(l.name))
	r := l.b.mutex(l.name)
	r.Tokens = driver.MaxTokens
	l.asked = time.Now()
	wake := l.b.queue(r)
	l.behind = l.c.mutex(l.name)
	l.behind.Tokens = driver.MaxTokens
	l.wake = l.c.queue(l.behind)
	time.Sleep(2 * time.Millisecond) // otherwise the block might not fit below the clock, and not get lost
	if err := l.a.Release(limited(t), l.before, 0); driver.IsOver(err) {
		return false
	} else if err != nil {
		t.Fatalf("Release: %v", err)
	}
	l.held = l.b.woken(r, wake)
	return true
}

// crash reports whether the server has lost the hand-over.
func (l *lost) crash(t *testing.T) bool {
	t.Helper()
	l.server.Kill()
	l.server.Start()
	return value[string](t, l.db, "SELECT hid FROM hf_lock WHERE name = $1", []byte(l.name)) == l.before.ID
}

// happen repeats begin and crash until a hand-over is lost; last runs just before the crash.
func (l *lost) happen(t *testing.T, last func()) {
	t.Helper()
	for range 10 {
		if !l.begin(t) {
			continue
		}
		last()
		if l.crash(t) {
			return
		}
	}
	t.Fatal("no hand-over was lost: the run proves nothing")
}

// served waits for c as a client would: it renews its place, which also finds grants without a
// notification.
func (l *lost) served(t *testing.T) (h driver.Hold, at time.Time) {
	t.Helper()
	place := driver.Hold{Name: l.name, ID: l.behind.ID}
	until(t, "the next waiter is served", func() bool {
		ch, err := renewed(l.c, place)
		if err != nil {
			t.Fatal(err)
		}
		h = driver.Hold{Name: l.name, ID: l.behind.ID, Token: ch.Token}
		return ch.State == driver.Granted
	})
	return h, time.Now()
}

// overlaps reports whether the block of tokens of c's grant does not lie above b's token.
func (l *lost) overlaps(h driver.Hold) bool { return h.Token < l.held.Token+driver.MaxTokens }

// Nobody else gets the lock while b may trust its lease.
func TestForgottenHandOver(t *testing.T) {
	t.Parallel()
	l := &lost{ttlA: 5 * time.Second, ttlB: 6 * time.Second}
	l.server, l.db = forgetful(t)
	l.happen(t, func() {})
	h, at := l.served(t)
	if d := at.Sub(l.asked); d < l.ttlB {
		t.Errorf("another got the lock %v after the holder's last call; it may trust its lease for %v", d, l.ttlB)
	}
	if l.overlaps(h) {
		t.Errorf("a block up to %d after token %d", h.Token, l.held.Token)
	}
	if ch, err := renewed(l.b, l.held); err != nil || ch.State != driver.Gone {
		t.Errorf("the former holder: %+v, %v", ch, err)
	}
	l.c.free(h)
	// A client whose release was lost too does not block the queue. Its Server listens again,
	// receives the new grant, and gives that back.
	l.ttlB = time.Hour
	l.happen(t, func() { l.b.free(l.held) })
	until(t, "it listens again", func() bool {
		return len(l.server.Backends(listening+" AND application_name = '"+l.name+"'")) == 1
	})
	if h, _ := l.served(t); l.overlaps(h) {
		t.Errorf("a block up to %d after token %d", h.Token, l.held.Token)
	}
}

// A holder whose grant the server has lost continues unaffected.
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
		// Later waiters look first: that must not matter.
		if ch, err := renewed(l.c, driver.Hold{Name: l.name, ID: l.behind.ID}); err != nil || ch.State == driver.Granted {
			t.Errorf("%s: the next waiter: %+v, %v", what, ch, err)
		}
		f()
		once := l.a.mutex(l.name)
		once.Wait = false
		if rep := l.a.ask(once); rep.Token != 0 {
			t.Errorf("%s: granted to another at the same time", what)
		}
		if err := l.b.Release(limited(t), l.held, 0); err != nil {
			t.Errorf("%s: Release: %v", what, err)
		}
		h, _ := l.served(t)
		if l.overlaps(h) {
			t.Errorf("%s: a block up to %d after token %d", what, h.Token, l.held.Token)
		}
		l.c.free(h)
	}
}

// Tokens ahead of the clock (it was set back, or the tables come from elsewhere) also grow over a
// crash.
func TestForgottenTokenAheadOfTheClock(t *testing.T) {
	t.Parallel()
	// The lost holder's place expires before its predecessor's lease does, so its grant goes to the
	// next waiter.
	l := &lost{ttlA: 7 * time.Second, ttlB: 5 * time.Second}
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
		granted := b.woken(r, wake)
		l.server.Kill()
		l.server.Start()
		l.c, l.name, l.behind = c, name, behind
		if h, _ := l.served(t); h.Token <= granted.Token {
			t.Errorf("token %d after %d", h.Token, granted.Token)
		}
	}
}
