package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// NOTIFY needs no right. A role that may read the locks sends forged notifications to waiters,
// receives theirs, and repeats them: nobody trusts any of them, and no other name is delayed.
func testNewsOfAStranger(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	run(t, admin, "CREATE ROLE onlooker LOGIN", "GRANT SELECT ON hf_meta, hf_lock, hf_done TO onlooker")
	stranger, err := pgx.Connect(limited(t), server.DSN("onlooker"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close(limited(t)) }()
	do := func(statement string, args ...any) {
		t.Helper()
		if _, err := stranger.Exec(limited(t), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if _, err := stranger.Exec(limited(t), "SELECT secret FROM hf_secret"); err == nil {
		t.Fatal("the stranger may read the secret")
	}

	holder, waiter := joinByServer(t, server.DSN("postgres"), time.Minute), joinByServer(t, server.DSN("postgres"),
		time.Minute)
	first, r := holder.take(holder.mutex("stranger/x")), waiter.mutex("stranger/x")
	wake := waiter.queue(r)
	var line, session string
	if err := stranger.QueryRow(limited(t), "SELECT line FROM hf_lock WHERE name = 'stranger/x'").Scan(&line); err != nil {
		t.Fatal(err)
	}
	place := strings.Fields(line)
	if id := place[0]; id != r.ID {
		t.Fatalf("the queue has %q", line)
	}
	session, _, _ = strings.Cut(place[1], ".")
	do("LISTEN hf_" + session)
	notify := func(text string) {
		t.Helper()
		do("SELECT pg_notify($1, $2)", "hf_"+session, text)
	}
	said := fmt.Sprintf("%s %d %x", r.ID, first.Token+1, r.Name)
	for _, text := range []string{
		said, said + " ", said + " " + strings.Repeat("0", 32), fmt.Sprintf("%s 0 %x", r.ID, r.Name),
		fmt.Sprintf("%s 9223372036854775807 %x", r.ID, r.Name),
		"", " ", strings.Repeat("x", 7999), strings.Repeat("a ", 3999),
	} {
		notify(text)
	}
	for i := range 20000 / 100 { // a flood, each for an unknown request
		do("SELECT pg_notify($1, 'r' || $2::text || g::text || ' 77 00') FROM generate_series(1, 100) AS g", "hf_"+session,
			fmt.Sprint(i))
	}
	waiter.free(waiter.take(waiter.mutex("stranger/other")))
	select {
	case token := <-wake:
		t.Errorf("the waiter was notified of %d", token)
	case <-time.After(200 * time.Millisecond):
	}

	// The waiter, which got no false notification, is handed the lock; its notification is repeated
	// for another waiter.
	holder.free(first)
	second := waiter.woken(r, wake)
	genuine := regexp.MustCompile("^" + r.ID + fmt.Sprintf(" %d [0-9a-f]+ [0-9a-f]{32}$", second.Token))
	var received string
	for !genuine.MatchString(received) {
		n, err := stranger.WaitForNotification(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		received = n.Payload
	}
	next := waiter.mutex("stranger/x")
	wake = waiter.queue(next)
	for _, text := range []string{received, strings.Replace(received, r.ID, next.ID, 1), received + "00"} {
		notify(text)
	}
	select {
	case token := <-wake:
		t.Errorf("the next waiter was notified of %d", token)
	case <-time.After(200 * time.Millisecond):
	}
	if c, err := waiter.renew(second); err != nil || c != (driver.Change{}) {
		t.Errorf("the holder's renewal: %+v, %v", c, err)
	}
	waiter.free(second)
	waiter.free(waiter.woken(next, wake))
}

// A token that the server's clock cannot have made does not count as a hand-over that a crash has
// lost.
func testTokenOfAStranger(t *testing.T, server *testenv.PostgresServer) {
	holder, waiter := join(t, server.DSN("postgres"), time.Minute), join(t, server.DSN("postgres"), time.Minute)
	first, r := holder.take(holder.mutex("stranger/token")), waiter.mutex("stranger/token")
	waiter.queue(r)
	for _, token := range []uint64{1<<63 - 1, 1 << 62, first.Token + uint64(time.Hour.Microseconds())} {
		made := driver.Hold{Name: r.Name, ID: r.ID, Token: token}
		if c, err := waiter.renew(made); err != nil || c.State != driver.Gone {
			t.Errorf("the renewal of token %d: %+v, %v", token, c, err)
		}
		want(t, waiter.Release(limited(t), made, 0), driver.ErrGone)
	}
	if c, err := holder.renew(first); err != nil || c != (driver.Change{}) {
		t.Errorf("the holder's renewal: %+v, %v", c, err)
	}
	holder.free(first)
}
