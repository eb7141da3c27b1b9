package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// A hand-over between processes is pushed: the waiter's process sends no statement between its
// place in the queue and its grant, so it cannot have asked or looked. Its listener may look when it
// begins to listen again, after three seconds without waiters; only a machine that stands still
// between two rounds gets there.
func testHandOverIsPushed(t *testing.T, server *testenv.PostgresServer) {
	dsn := named(t, server)
	a := joinByServer(t, dsn, time.Hour)
	listens := pool(t, dsn)
	db := sqltest.OpenBreaking(t, listens, dsn)
	waiters := sqllock.New(db.DB, postgres.Dialect(), &sqllock.Config{Listen: listens})
	t.Cleanup(func() { _ = waiters.Close() })
	b := session(t, waiters, db.DB, time.Hour)
	for name, request := range map[string]func(string) *driver.Request{"pushed": b.mutex, "pushed to a reader": b.shared} {
		const rounds = 50
		pushed := 0
		var asked []string
		for range rounds {
			held := a.take(a.mutex(name))
			r := request(name)
			wake := b.queue(r)
			db.Sent()
			a.free(held)
			h := b.woken(r, wake)
			if sent := db.Sent(); len(sent) > 0 {
				asked = sent
			} else {
				pushed++
			}
			b.free(h)
		}
		if why := waiters.Polling(); why != "" {
			t.Fatalf("polling: %s", why)
		}
		t.Logf("%s: %d of %d hand-overs without a statement", name, pushed, rounds)
		if pushed == 0 {
			t.Errorf("%s: the waiter's process asked before each of %d hand-overs reached it; in the last: %q", name, rounds,
				asked)
		}
	}
}

func testLineOfProcesses(t *testing.T, server *testenv.PostgresServer) {
	const waiters = 32
	holder := joinByServer(t, named(t, server), time.Hour)
	held := holder.take(holder.mutex("line"))
	type place struct {
		p    *party
		r    *driver.Request
		wake <-chan uint64
	}
	var servers []*party
	for range 8 {
		servers = append(servers, joinByServer(t, named(t, server), time.Hour))
	}
	var line []place
	for i := range waiters {
		p := servers[i%len(servers)]
		r := p.mutex("line")
		rep := p.ask(r)
		if rep.Token != 0 || rep.Ahead != i {
			t.Fatalf("waiter %d: %+v", i, rep)
		}
		line = append(line, place{p, r, rep.Wake})
	}
	holder.free(held)
	last := held.Token
	for i, w := range line {
		h := w.p.woken(w.r, w.wake)
		if h.Token <= last {
			t.Errorf("token %d after %d", h.Token, last)
		}
		last = h.Token
		for _, other := range line[i+1:] {
			select {
			case token := <-other.wake:
				t.Fatalf("a waiter behind waiter %d was notified of %d", i, token)
			default:
			}
		}
		w.p.free(h)
	}
}

// A name of any bytes is sent whole, within the limit of a notification.
func testOddNames(t *testing.T, server *testenv.PostgresServer) {
	a, b := joinByServer(t, named(t, server), time.Hour), joinByServer(t, named(t, server), time.Hour)
	for _, name := range []string{
		strings.Repeat("\x00", driver.MaxName), strings.Repeat("\U0001f512", driver.MaxName/4),
		"a 'b' \"c\" \\ $1 ? {now} %00\n", " ", "\n",
	} {
		held := a.take(a.mutex(name))
		r := b.mutex(name)
		r.ID = (r.ID + strings.Repeat("z", 48))[:48]
		r.Info = strings.Repeat("\x00\U0001f512 %\n", driver.MaxInfo/9)
		wake := b.queue(r)
		if rec, err := a.b.Inspect(limited(t), name); err != nil || len(rec.Waiters) != 1 || rec.Waiters[0].Info != r.Info ||
			rec.Name != name {
			t.Errorf("%q: %+v, %v", name, rec, err)
		}
		a.free(held)
		h := b.woken(r, wake)
		once := a.mutex(name)
		once.Wait = false
		rep := a.ask(once)
		if rep.Holder == nil || rep.Holder.Info != r.Info || rep.Holder.ID != r.ID {
			t.Errorf("%q: in the way %+v", name, rep.Holder)
		}
		b.free(h)

		// In the texts of a row, which are sent in arrays if there are several.
		first, second := b.shared(name), b.shared(name+"2"[:min(1, driver.MaxName-len(name))])
		first.Info, second.Info = `"\{}, NULL'`, r.Info
		if second.Name == name {
			continue // the name cannot be longer
		}
		holds := []driver.Hold{b.take(first), b.take(second)}
		if changes, err := b.Renew(limited(t), holds); err != nil || len(changes) > 0 {
			t.Errorf("Renew: %+v, %v", changes, err)
		}
		for _, r := range []*driver.Request{first, second} {
			if rec, err := a.b.Inspect(limited(t), r.Name); err != nil || len(rec.Holders) != 1 ||
				rec.Holders[0].Info != r.Info {
				t.Errorf("%q: %+v, %v", r.Name, rec, err)
			}
		}
		b.free(holds[0])
		b.free(holds[1])
	}
}

// Commits that notify wait for each other in the whole cluster, so nothing is sent while nobody
// waits.
func testNothingToldWhileNobodyWaits(t *testing.T, server *testenv.PostgresServer) {
	a, b := joinByServer(t, named(t, server), time.Hour), joinByServer(t, named(t, server), time.Hour)
	c, err := pgx.Connect(limited(t), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(limited(t)) }()
	// The channels are those of the sessions' Servers: "Server.session" is in the row.
	held, other := a.take(a.mutex("told/x")), b.take(b.mutex("told/y"))
	admin := pool(t, server.DSN("postgres"))
	for _, name := range []string{"told/x", "told/y"} {
		id := value[string](t, admin, "SELECT split_part(hsession, '.', 1) FROM hf_lock WHERE name = $1", []byte(name))
		if _, err := c.Exec(limited(t), "LISTEN hf_"+id); err != nil {
			t.Fatal(err)
		}
	}
	a.free(held)
	b.free(other)
	for range 20 {
		a.free(a.take(a.mutex("told/x")))
		b.free(b.take(b.mutex("told/x")))
		s := a.take(a.permits("told/s", 1, 2))
		a.free(s)
		r := a.take(a.shared("told/r"))
		a.free(r)
	}
	// Earlier notifications arrive before this.
	held = a.take(a.mutex("told/x"))
	r := b.mutex("told/x")
	wake := b.queue(r)
	a.free(held)
	h := b.woken(r, wake)
	n, err := c.WaitForNotification(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%s %d %x ", r.ID, h.Token, r.Name); !strings.HasPrefix(n.Payload, want) {
		t.Errorf("received %q before %q", n.Payload, want)
	}
}

// listening selects the connections that listen.
const (
	checking  = "query LIKE 'SELECT encode(secret%'"
	listening = "(query LIKE '%LISTEN%' OR " + checking + ")"
)

// A broken listener is detected, and missed notifications are looked up.
func testListenerThatIsEnded(t *testing.T, server *testenv.PostgresServer) {
	a, b := joinIdleAfter(t, named(t, server), time.Hour), joinIdleAfter(t, named(t, server), time.Hour)
	admin := pool(t, server.DSN("postgres"))
	listeners := func() int {
		return value[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND "+listening,
			t.Name())
	}
	if n := listeners(); n != 2 {
		t.Fatalf("%d listen", n)
	}
	for range 5 {
		held := a.take(a.mutex("ended"))
		r := b.mutex("ended")
		wake := b.queue(r)
		// Every order is valid here: the hand-over may come before, between or after.
		if _, err := admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND "+
			listening, t.Name()); err != nil {
			t.Fatal(err)
		}
		a.free(held)
		b.free(b.woken(r, wake))
		until(t, "both listen again", func() bool { return listeners() == 2 })
	}
}

// A silent connection is checked, and kept.
func testLongSilence(t *testing.T, server *testenv.PostgresServer) {
	a, b := joinIdleAfter(t, named(t, server), time.Hour), joinIdleAfter(t, named(t, server), time.Hour)
	admin := pool(t, server.DSN("postgres"))
	pids := func() string {
		return value[string](t, admin,
			"SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = $1", t.Name())
	}
	held := a.take(a.mutex("silence"))
	r := b.mutex("silence")
	wake := b.queue(r)
	before := pids()
	checked := "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND " + checking
	until(t, "both were checked", func() bool { return value[int](t, admin, checked, t.Name()) == 2 })
	a.free(held)
	b.free(b.woken(r, wake))
	if after := pids(); after != before {
		t.Errorf("connections %s, and after the silence %s", before, after)
	}
}

// PostgreSQL ends all its processes when one is killed, and recovers. No two hold at once, and
// waiters are served.
func TestKilledBackend(t *testing.T) {
	t.Parallel()
	server := database(t)
	a, b := join(t, server.DSN("postgres"), time.Hour), join(t, server.DSN("postgres"), 2*time.Second)
	c := client(t, server.DSN("postgres"), 2*time.Second)
	held := a.take(a.mutex("x"))
	lost := b.take(b.mutex("y"))
	r := b.mutex("x")
	b.queue(r)
	served := make(chan uint64, 1)
	go func() {
		l, err := c.Mutex("y").Lock(limited(t))
		if err != nil {
			t.Errorf("Lock: %v", err)
			close(served)
			return
		}
		served <- l.Token()
	}()
	until(t, "it waits", func() bool {
		rec, err := a.b.Inspect(limited(t), "y")
		return err == nil && (rec.Waiting == 1 || // or b's lease is over
			len(rec.Holders) == 1 && rec.Holders[0].Token > lost.Token)
	})
	server.KillBackend("query LIKE '%LISTEN%'")
	if ch, err := renewed(a, held); err != nil || ch.State != 0 {
		t.Errorf("the holder: %+v, %v", ch, err)
	}
	if token := <-served; token <= lost.Token {
		t.Errorf("token %d after %d", token, lost.Token)
	}
	if ch, err := renewed(b, lost); err != nil || ch.State != driver.Gone {
		t.Errorf("the client that was silent for long: %+v, %v", ch, err)
	}
	wake := b.queue(r)
	a.free(held)
	if h := b.woken(r, wake); h.Token <= held.Token {
		t.Errorf("token %d after %d", h.Token, held.Token)
	}
}

// renewed renews until the server answers.
func renewed(p *party, h driver.Hold) (ch driver.Change, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if ch, err = p.renew(h); err == nil {
			break
		}
	}
	return ch, err
}
