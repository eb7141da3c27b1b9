//go:build unix

package main_test

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// postgresURL has user, or user:password.
func postgresURL(addr, user, database string) string {
	return "postgres://" + user + "@" + addr + "/" + database
}

// postgresGrants returns the grants of docs/postgres.md.
func postgresGrants(t *testing.T, database, role string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "GRANT ") {
			line = strings.ReplaceAll(line, "DATABASE locks", "DATABASE "+database)
			list = append(list, strings.TrimSuffix(strings.ReplaceAll(line, "TO holdfast", "TO "+role), ";"))
		}
	}
	if len(list) != 4 {
		t.Fatalf("the grants on database, schema, tables and the secret; found %q", list)
	}
	return list
}

// passwords makes the server ask users of the group locked for a password over TCP.
func passwords(b *bench, p *testenv.PostgresServer, wrong string) {
	b.Helper()
	p.Exec("CREATE ROLE locked", `DO $$ BEGIN EXECUTE format('COPY (SELECT unnest(ARRAY[
		''local all all trust'', ''host all +locked 127.0.0.1/32 scram-sha-256'', ''host all all 127.0.0.1/32 trust''])) TO %L', current_setting('hba_file')); END $$`,
		"CREATE ROLE \"us er\" LOGIN SUPERUSER PASSWORD 'c4nary/@?#:' IN ROLE locked", "SELECT pg_reload_conf()")
	// The server loads the settings a little later, without an event.
	b.until("passwords are asked for", func() bool { code, _, _ := b.at(wrong).run("ls"); return code == 77 })
}

func TestPostgres(t *testing.T) {
	b := newBench(t)
	p := postgres(t)
	const user, password = "us%20er", "c4nary%2F%40%3F%23%3A"
	b.initialise(postgresURL(p.Addr, "postgres", "postgres"))
	passwords(b, p, postgresURL(p.Addr, user+":wr0ng", "postgres"))
	database := func(name string) string {
		t.Helper()
		p.Exec("CREATE DATABASE " + name)
		return name
	}

	t.Run("urls", func(t *testing.T) {
		b := newBench(t)
		b.initialise(postgresURL(p.Addr, "postgres", database("served")))
		for _, u := range []string{
			postgresURL(p.Addr, user+":"+password, "served"),
			"postgresql://postgres@" + p.Addr + "/served?sslmode=disable&connect_timeout=3",
			"postgres://127.0.0.1:1," + p.Addr + "/served?target_session_attrs=read-write&user=us%20er&password=" + password,
		} {
			b.works(u)
		}
		b.passedOn(postgresURL(p.Addr, user+":"+password, "served"), "postgres://us%20er@"+p.Addr+"/served")
		b.passedOn("postgres://"+p.Addr+"/served?user=us%20er&password="+password+"&application_name=a%20b",
			"postgres://"+p.Addr+"/served?user=us%20er&application_name=a%20b")
		// Another schema is another lock table.
		p.Exec(`\connect served`, "CREATE SCHEMA other")
		other := postgresURL(p.Addr, "postgres", "served") + "?search_path=other"
		b.without(other)
		b.want(0, "--store", other, "init")
		b.at(postgresURL(p.Addr, "postgres", "served")).
			want(0, "run", "a", "--", binary, "--store", other, "run", "-n", "a", "--", "true")
	})

	t.Run("init", func(t *testing.T) {
		b := newBench(t)
		u := postgresURL(p.Addr, "postgres", database("made"))
		b.without(u)
		b.initialise(u)
		holder := b.stay("token", "a")
		token := b.file("token")
		b.initialise(u)
		if now := b.token("a"); now != token {
			t.Errorf("the token was %s and is %s", token, now)
		}
		holder.end()
		// By hand, from a URL whose server no client reaches.
		printed, stderr := b.want(0, "init", "--print", "--store", "postgres://u@127.0.0.1:1/printed")
		if stderr != "" {
			t.Error(stderr)
		}
		p.Exec("CREATE SCHEMA printed", "SET search_path = printed", printed+printed)
		u = postgresURL(p.Addr, "postgres", "postgres") + "?search_path=printed"
		b.works(u)
		p.Exec("UPDATE printed.hf_meta SET version = 99")
		b.want(77, "--store", u, "ls")
		b.want(77, "--store", u, "init")
		for _, u := range []string{postgresURL(p.Addr, "postgres", "nowhere"),
			postgresURL(p.Addr, "postgres", "postgres") + "?search_path=nowhere"} {
			if _, stderr := b.want(77, "--store", u, "init"); !strings.Contains(stderr, "no such database or schema") {
				t.Error(stderr)
			}
		}
	})

	// A role with the rights that the documents name, and no others, can do everything but init.
	t.Run("grants", func(t *testing.T) {
		b := newBench(t)
		admin := postgresURL(p.Addr, "postgres", database("granted"))
		b.initialise(admin)
		p.Exec("CREATE ROLE locker LOGIN PASSWORD 'c4nary' IN ROLE locked", "REVOKE ALL ON DATABASE granted FROM PUBLIC")
		grants := postgresGrants(t, "granted", "locker")
		p.Exec(append([]string{`\connect granted`, "REVOKE ALL ON SCHEMA public FROM PUBLIC"}, grants...)...)
		u := postgresURL(p.Addr, "locker:c4nary", "granted")
		b.locks(u)
		b.queue(u)
		b.want(0, "--store", u, "init") // there is nothing to do
		p.Exec(`\connect granted`, "UPDATE hf_meta SET version = 0")
		if _, stderr := b.want(77, "--store", u, "init"); !strings.Contains(stderr, "permission denied") {
			t.Error(stderr)
		}
	})

	t.Run("refused", func(t *testing.T) {
		b := newBench(t)
		b.initialise(postgresURL(p.Addr, "postgres", database("refused")))
		for u, c := range map[string]struct {
			code int
			says string
		}{
			postgresURL(p.Addr, user+":wr0ng", "refused"):     {77, "password authentication failed"},
			postgresURL(p.Addr, user, "refused"):              {77, "password authentication failed"},
			postgresURL(p.Addr, "nobody:wr0ng", "refused"):    {77, `role "nobody" does not exist`},
			postgresURL(p.Addr, user+":"+password, "nowhere"): {77, "no such database"},
			postgresURL(p.Addr, "postgres", "refused?nonsense=1"): {77,
				`unrecognized configuration parameter "nonsense"`},
			postgresURL(p.Addr, "postgres:wr0ng", "refused?sslmode=sometimes"):       {78, "sslmode is invalid"},
			postgresURL(p.Addr, user+":wr0ng/", "refused"):                           {78, "percent-encoded"},
			postgresURL(p.Addr, "postgres", "refused?listen=postgres://u:wr0ng"):     {78, "listen: "},
			postgresURL("127.0.0.1:1", user+":"+password, "refused"):                 {69, "connection refused"},
			postgresURL(p.Addr, "postgres:wr0ng", "refused?sslmode=require"):         {69, "TLS"},
			postgresURL("holdfast.invalid", "u:c4nary", "refused?connect_timeout=1"): {69, "holdfast.invalid"},
		} {
			for _, args := range [][]string{{"run", "a", "--", "true"}, {"ls"}} {
				_, stderr := b.at(u).want(c.code, append([]string{"--ttl", "1s"}, args...)...)
				if !strings.Contains(stderr, c.says) || strings.Contains(stderr, "wr0ng") || strings.Contains(stderr, "c4nary") ||
					strings.Count(stderr, "\n") != 1 {
					t.Errorf("%s: %s", u, stderr)
				}
			}
		}
	})

	t.Run("holders", func(t *testing.T) {
		b := newBench(t)
		u := postgresURL(p.Addr, "postgres", database("held"))
		b.initialise(u)
		b.holders(u)
	})

	// Behind a pooler in session mode all works as without one. In transaction mode waiters poll,
	// and report that once. A direct connection fixes it.
	t.Run("pooler", func(t *testing.T) {
		b := newBench(t)
		b.queue(postgresURL(testenv.PgBouncer(t, p, "session").Addr, "postgres", "postgres"))
		pooler := testenv.PgBouncer(t, p, "transaction")
		u := postgresURL(pooler.Addr, "postgres", "postgres")
		b.works(u)
		b.queue(u + "?listen=" + url.QueryEscape(postgresURL(p.Addr, user+":"+password, "postgres")))
		b = b.at(u)
		b.stay("polled", "p")
		b.file("polled")
		waiter := b.start("run", "--also", "q", "p", "--", "true")
		messages := func() string { return slow.ReplaceAllString(waiter.err.String(), "") }
		b.until("two messages", func() bool { return strings.Count(messages(), "\n") >= 2 })
		said := regexp.MustCompile(
			`^holdfast: waiters ask the store every 5 to 50 ms because it cannot wake them: .*listen= in the URL.*\nwaiting for p: 0 ahead .*\n$`)
		if !said.MatchString(messages()) {
			t.Error(waiter.err.String())
		}
		b.want(0, "break", "p", "--token", b.token("p"))
		if code := waiter.code(); code != 0 {
			t.Errorf("exit code %d: %s", code, waiter.err.String())
		}
	})
}

func TestPostgresTLS(t *testing.T) {
	b := newBench(t)
	p := testenv.PostgresTLS(t)
	files := "sslcert=" + p.TLS.Cert + "&sslkey=" + p.TLS.Key
	u := postgresURL(p.Addr, "postgres", "postgres")
	b.initialise(u + "?sslmode=verify-full&sslrootcert=" + p.TLS.CA + "&" + files)
	b.works(p.DSN("postgres"))
	b.quietly("--store", u+"?sslmode=require&"+files, "run", "a", "--", "true")
	// Without TLS, without a client certificate, without trust in the server's certificate.
	b.want(77, "--store", u+"?sslmode=disable", "ls")
	b.want(77, "--store", u+"?sslmode=verify-full&sslrootcert="+p.TLS.CA, "ls")
	b.want(69, "--store", u+"?sslmode=verify-full&"+files, "ls")
}

// If the store is gone or silent, the command ends before its lock expires.
func TestPostgresGoesAway(t *testing.T) {
	for name, harm := range harms() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s := postgres
			if name == "killed" {
				s = func(t testing.TB) *testenv.PostgresServer { return testenv.Postgres(t) }
			}
			server := s(t)
			p := testenv.Proxy(t, server.Addr)
			u := postgresURL(p.Addr, "postgres", database(t, server))
			b.initialise(u)
			b.outage(u, func() { harm(server, p) })
		})
	}
}
