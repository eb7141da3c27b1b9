//go:build unix

package main_test

import (
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// mySQLURL has user, or user:password.
func mySQLURL(addr, user, database string) string {
	return "mysql://" + user + "@" + addr + "/" + database
}

// mySQLGrants returns the grants of docs/mysql.md.
func mySQLGrants(t *testing.T, database, user string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/mysql.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "GRANT ") {
			line = strings.ReplaceAll(line, "locks.", database+".")
			list = append(list, strings.TrimSuffix(strings.ReplaceAll(line, "'holdfast'@'%'", user), ";"))
		}
	}
	if len(list) != 5 {
		t.Fatalf("the grants of 5 tables; found %q", list)
	}
	return list
}

func TestMySQL(t *testing.T) {
	newBench(t)
	m := mariaDB(t)
	m.Exec("CREATE USER `us er`@'%' IDENTIFIED BY 'c4nary/@?#:'", "GRANT ALL ON *.* TO `us er`@'%'")
	const user, password = "us%20er", "c4nary%2F%40%3F%23%3A"
	database := func(b *bench, name string) string {
		b.Helper()
		m.Exec("CREATE DATABASE " + name)
		return name
	}

	t.Run("urls", func(t *testing.T) {
		b := newBench(t)
		b.initialise(mySQLURL(m.Addr, "root", "test"))
		for _, u := range []string{
			mySQLURL(m.Addr, user+":"+password, "test"), "mariadb://root@" + m.Addr + "/test?timeout=2s&readTimeout=10s&tls=off",
			"mysql://" + user + ":" + password + "@/test?socket=" + url.QueryEscape(m.Socket),
			"mysql://root@localhost/te%73t?socket=" + m.Socket,
		} {
			b.works(u)
		}
		b.passedOn(mySQLURL(m.Addr, user+":"+password, "test"), "mysql://us%20er@"+m.Addr+"/test")
		b.want(0, "--store", mySQLURL(m.Addr, "root", database(b, "other")), "init")
		b.want(0, "run", "a", "--", binary, "--store", mySQLURL(m.Addr, "root", "other"), "run", "-n", "a", "--", "true")
	})

	t.Run("init", func(t *testing.T) {
		b := newBench(t)
		u := mySQLURL(m.Addr, "root", database(b, "made"))
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
		printed, stderr := b.want(0, "init", "--print", "--store", "mysql://u@127.0.0.1:1/printed")
		client := exec.Command("mariadb", "--no-defaults", "--socket="+m.Socket, "--user=root", database(b, "printed"))
		client.Stdin = strings.NewReader(printed + printed)
		if out, err := client.CombinedOutput(); err != nil || stderr != "" {
			t.Fatalf("%v: %s%s", err, out, stderr)
		}
		b.works(mySQLURL(m.Addr, "root", "printed"))
		m.Exec("UPDATE printed.hf_meta SET version = 99")
		b.want(77, "--store", mySQLURL(m.Addr, "root", "printed"), "ls")
		b.want(77, "--store", mySQLURL(m.Addr, "root", "printed"), "init")
		if _, stderr := b.want(77, "--store", mySQLURL(m.Addr, "root", "nowhere"), "init"); !strings.Contains(stderr,
			"no such database") {
			t.Error(stderr)
		}
	})

	// A user with the rights that the documents name, and no others, can do everything but init.
	t.Run("grants", func(t *testing.T) {
		b := newBench(t)
		b.initialise(mySQLURL(m.Addr, "root", database(b, "granted")))
		m.Exec(append([]string{"CREATE USER locker@'%' IDENTIFIED BY 'c4nary'"},
			mySQLGrants(t, "granted", "locker@'%'")...)...)
		u := mySQLURL(m.Addr, "locker:c4nary", "granted")
		b.locks(u)
		b.queue(u)
		b.quietly("--store", u, "run", "a", "--", "true")
		b.want(0, "--store", u, "init") // there is nothing to do
		m.Exec("UPDATE granted.hf_meta SET version = 0")
		if _, stderr := b.want(77, "--store", u, "init"); !strings.Contains(stderr, "CREATE command denied") ||
			strings.Contains(stderr, "c4nary") {
			t.Error(stderr)
		}
	})

	t.Run("refused", func(t *testing.T) {
		b := newBench(t)
		b.initialise(mySQLURL(m.Addr, "root", database(b, "refused")))
		for u, c := range map[string]struct {
			code int
			says string
		}{
			mySQLURL(m.Addr, user+":wr0ng", "refused"):                {77, "Access denied"},
			mySQLURL(m.Addr, "nobody:wr0ng", "refused"):               {77, "Access denied"},
			mySQLURL(m.Addr, user+":"+password, "nowhere"):            {77, "no such database"},
			mySQLURL(m.Addr, "root", "refused?parseTime=true"):        {78, `"parseTime" is unknown; allowed are mysql://`},
			mySQLURL(m.Addr, user+":wr0ng/", "refused"):               {78, "percent-encoded"},
			mySQLURL("127.0.0.1:1", user+":"+password, "refused"):     {69, "connection refused"},
			mySQLURL(m.Addr, "root", "refused?tls=true"):              {69, "TLS"},
			"mysql://root@/refused?socket=/does/not/exist":            {69, "/does/not/exist"},
			"mysql://u:c4nary@holdfast.invalid/refused?timeout=100ms": {69, "holdfast.invalid"},
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
		u := mySQLURL(m.Addr, "root", database(b, "held"))
		b.initialise(u)
		b.holders(u)
	})
}

func TestMySQLTLS(t *testing.T) {
	b := newBench(t)
	m := testenv.MariaDBTLS(t)
	u := mySQLURL(m.Addr, "root", "test")
	files := "&cert=" + m.TLS.Cert + "&key=" + m.TLS.Key
	b.initialise(u + "?tls=true&ca=" + m.TLS.CA + files)
	b.works(u + "?tls=true&servername=localhost&ca=" + m.TLS.CA + files)
	b.quietly("--store", u+"?tls=skip-verify"+files, "run", "a", "--", "true")
	// Without TLS, without a client certificate, without trust in the server's, with another name.
	b.want(77, "--store", u, "ls")
	b.want(77, "--store", u+"?tls=true&ca="+m.TLS.CA, "ls")
	b.want(69, "--store", u+"?tls=true"+files, "ls")
	b.want(69, "--store", u+"?tls=true&servername=other&ca="+m.TLS.CA+files, "ls")
}

// If the store is gone or silent, the command ends before its lock expires.
func TestMySQLGoesAway(t *testing.T) {
	for name, harm := range harms() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			m := mariaDB
			if name == "killed" {
				m = func(t testing.TB) *testenv.MariaDBServer { return testenv.MariaDB(t) }
			}
			server := m(t)
			p := testenv.Proxy(t, server.Addr)
			u := mySQLURL(p.Addr, "root", database(t, server))
			b.initialise(u)
			b.outage(u, func() { harm(server, p) })
		})
	}
}
