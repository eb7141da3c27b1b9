package postgres_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// genuineNotification returns the channel and payload of a genuine grant's notification, as a role
// that may read the locks receives it.
func genuineNotification(t *testing.T, stranger *pgx.Conn, holder, waiter *party, name string) (
	channel, received string) {
	t.Helper()
	first, r := holder.take(holder.mutex(name)), waiter.mutex(name)
	wake := waiter.queue(r)
	var line string
	if err := stranger.QueryRow(limited(t), "SELECT line FROM hf_lock WHERE name = $1", []byte(name)).
		Scan(&line); err != nil {
		t.Fatal(err)
	}
	server, _, _ := strings.Cut(strings.Fields(line)[1], ".")
	channel = "hf_" + server
	if _, err := stranger.Exec(limited(t), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	holder.free(first)
	genuine := regexp.MustCompile("^" + r.ID + " [0-9]+ [0-9a-f]+ [0-9a-f]{32}$")
	for !genuine.MatchString(received) {
		n, err := stranger.WaitForNotification(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		received = n.Payload
	}
	waiter.free(waiter.woken(r, wake))
	return channel, received
}

func looks(t *testing.T, server *testenv.PostgresServer) *pgx.Conn {
	t.Helper()
	server.Exec("CREATE ROLE looks LOGIN", "GRANT SELECT ON hf_meta, hf_lock, hf_done TO looks")
	c, err := pgx.Connect(limited(t), server.DSN("looks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(limited(t)) })
	return c
}

// A role that may read the locks receives a waiter's notification, and repeats it many times long
// after the grant has ended. Nothing is delayed, and nothing grows.
func TestGenuineNewsRepeated(t *testing.T) {
	server := database(t)
	stranger := looks(t, server)
	holder, waiter := joinByServer(t, server.DSN("postgres"), time.Minute), joinByServer(t, server.DSN("postgres"),
		time.Minute)
	channel, received := genuineNotification(t, stranger, holder, waiter, "x")
	if _, err := stranger.Exec(limited(t), "UNLISTEN *"); err != nil {
		t.Fatal(err)
	}
	cycle := func(name string) time.Duration {
		began := time.Now()
		waiter.free(waiter.take(waiter.mutex(name)))
		return time.Since(began)
	}
	calm := cycle("x")
	before := runtime.NumGoroutine()
	done := make(chan error, 1)
	go func() {
		_, err := stranger.Exec(limited(t), fmt.Sprintf(
			"DO $$ BEGIN FOR i IN 1..30000 LOOP PERFORM pg_notify('%s', '%s'); COMMIT; END LOOP; END $$", channel, received))
		done <- err
	}()
	most, same, other := 0, calm, time.Duration(0)
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		same, other = max(same, cycle("x")), max(other, cycle("y"))
		most = max(most, runtime.NumGoroutine())
	}
	t.Logf("calm %v; in the flood: the same name %v, another %v; goroutines %d, before %d", calm, same, other, most,
		before)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if same > 30*time.Second || most > before+200 {
		t.Errorf("a name was delayed for %v, and there were %d more goroutines", same, most-before)
	}
}

// Nothing that the server writes for its administrators contains the secret of notifications.
func TestSecretIsNotLogged(t *testing.T) {
	server := testenv.Postgres(t, "log_statement=all", "log_destination=stderr", "logging_collector=on",
		"log_directory=log", "log_filename=all.log")
	initialise(t, server.DSN("postgres"))
	c, err := pgx.Connect(limited(t), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(limited(t)) }()
	var secret, log string
	if err := c.QueryRow(limited(t), "SELECT encode(secret, 'hex') FROM hf_secret").Scan(&secret); err != nil {
		t.Fatal(err)
	}
	if err := c.QueryRow(limited(t), "SELECT pg_read_file('log/all.log')").Scan(&log); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log, secret) {
		t.Error("the secret is in the log")
	}
}

// A role that may only read cannot lock rows or tables against writers.
func TestDashboardLocksNothing(t *testing.T) {
	server := database(t)
	c := looks(t, server)
	for _, s := range []string{
		"SELECT * FROM hf_lock FOR UPDATE", "SELECT * FROM hf_lock FOR KEY SHARE", "LOCK TABLE hf_lock IN ROW SHARE MODE",
		"LOCK TABLE hf_lock IN SHARE MODE",
		"LOCK TABLE hf_lock IN EXCLUSIVE MODE", "LOCK TABLE hf_lock IN ACCESS EXCLUSIVE MODE", "VACUUM hf_lock",
		"CREATE INDEX ON hf_lock (token)",
		"CREATE RULE x AS ON UPDATE TO hf_lock DO INSTEAD NOTHING", "SELECT secret FROM hf_secret", "ANALYZE hf_lock",
		"REINDEX TABLE hf_lock",
	} {
		if _, err := c.Exec(limited(t), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		_, err := c.Exec(limited(t), s)
		t.Logf("%s: %v", s, err)
		_, _ = c.Exec(limited(t), "ROLLBACK")
	}
}

// A genuine notification of a grant, repeated to another Server, ends no grant.
func TestGenuineNewsElsewhere(t *testing.T) {
	server := database(t)
	stranger := looks(t, server)
	holder, waiter, other := joinByServer(t, server.DSN("postgres"), time.Minute), joinByServer(t, server.DSN("postgres"),
		time.Minute), joinByServer(t, server.DSN("postgres"), time.Minute)
	first, r := holder.take(holder.mutex("x")), waiter.mutex("x")
	wake := waiter.queue(r)
	behind := other.mutex("x")
	waiting := other.queue(behind)
	servers := map[string]string{} // by request, as in hf_lock
	var line string
	if err := stranger.QueryRow(limited(t), "SELECT line FROM hf_lock WHERE name = 'x'").Scan(&line); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(line) {
		f := strings.Fields(l)
		servers[f[0]], _, _ = strings.Cut(f[1], ".")
	}
	if _, err := stranger.Exec(limited(t), "LISTEN hf_"+servers[r.ID]); err != nil {
		t.Fatal(err)
	}
	holder.free(first)
	h := waiter.woken(r, wake)
	var received string
	for !strings.HasPrefix(received, r.ID+" ") {
		n, err := stranger.WaitForNotification(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		received = n.Payload
	}
	if _, err := stranger.Exec(limited(t), "SELECT pg_notify($1, $2)", "hf_"+servers[behind.ID], received); err != nil {
		t.Fatal(err)
	}
	select {
	case token := <-waiting:
		t.Errorf("granted token %d while %d is held", token, h.Token)
	case <-time.After(time.Second):
	}
	if c, err := waiter.renew(h); err != nil || c.State != 0 {
		t.Errorf("the holder's renewal: %+v, %v", c, err)
	}
}
