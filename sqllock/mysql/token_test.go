package mysql_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// Tokens of a name grow whatever happens to its row.
func TestTokensGrow(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	a, b := join(t, server.DSN("root", ""), time.Minute), join(t, server.DSN("root", ""), time.Minute)
	last := uint64(0)
	next := func(after string) driver.Hold {
		t.Helper()
		h := b.get(once(b.req("x")))
		if h.Token <= last {
			t.Errorf("token %d after %d and %s", h.Token, last, after)
		}
		last = h.Token
		return h
	}
	b.release(next("nothing"))
	b.release(next("a release"))
	short := join(t, server.DSN("root", ""), driver.MinTTL)
	r := short.req("x")
	h := short.get(r)
	last = h.Token
	eventually(t, "the lease has expired", func() bool { return len(a.inspect("x").Holders) == 0 })
	b.release(next("an expired lease"))
	for _, statement := range []string{"DELETE FROM hf_lock", "TRUNCATE TABLE hf_lock", "DROP TABLE hf_lock"} {
		h := next("another")
		ver := value[int64](t, admin, "SELECT ver FROM hf_lock WHERE name = 'x'")
		run(t, admin, statement)
		if strings.HasPrefix(statement, "DROP") {
			run(t, admin, sqllock.Schema(mysql.Dialect())...)
		}
		if ch := b.renew(h); ch.State != driver.Gone {
			t.Errorf("Renew after %s = %+v; want Gone", statement, ch)
		}
		h = next(statement)
		// A client that has read the old row must not mistake this one for it.
		if now := value[int64](t, admin, "SELECT ver FROM hf_lock WHERE name = 'x'"); now <= ver {
			t.Errorf("version %d after %d and %s", now, ver, statement)
		}
		b.release(h)
	}
	h = next("another")
	server.Restart(false)
	eventually(t, "renewed again", func() bool {
		changes, err := b.Renew(t.Context(), []driver.Hold{h})
		if err == nil && len(changes) > 0 {
			t.Errorf("Renew after a restart = %+v", changes)
		}
		return err == nil
	})
	b.release(h)
	b.release(next("a restart"))
}

// Restoring a dump later, here or elsewhere, neither brings tokens back nor interrupts connections
// at addresses in it.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("mariadb-dump")
	if err != nil {
		t.Fatalf("%v: it comes with MariaDB's client programs", err)
	}
	server := maria(t)
	a, b := join(t, server.DSN("root", ""), time.Minute), join(t, server.DSN("root", ""), time.Minute)
	h := a.get(a.req("x"))
	place := b.req("x")
	rep := b.refused(place)
	dump := filepath.Join(t.TempDir(), "dump")
	file, err := os.Create(dump)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--no-defaults", "--socket="+server.Socket, "--user=root",
		"--single-transaction", "test")
	cmd.Stdout = file
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	a.release(h)
	b.release(b.served(place, rep))
	last := a.get(a.req("x"))
	restored := testenv.MariaDB(t)
	for _, server := range []*testenv.MariaDBServer{server, restored} {
		text, err := os.ReadFile(dump)
		if err != nil {
			t.Fatal(err)
		}
		server.Exec(string(text))
		c := join(t, server.DSN("root", ""), time.Minute)
		// Held again by a, which has released it, and then by b, which has left.
		for _, id := range []string{a.id + "-1", place.ID} {
			rec := c.inspect("x")
			if len(rec.Holders) != 1 || rec.Holders[0].ID != id {
				t.Fatalf("held by %+v; want %s", rec.Holders, id)
			}
			if err := c.b.Break(t.Context(), "x", rec.Holders[0].Token); err != nil {
				t.Errorf("Break: %v", err)
			}
		}
		if next := c.get(c.req("x")); next.Token <= last.Token {
			t.Errorf("token %d after %d", next.Token, last.Token)
		}
	}
}

// The server's clock decides, in any time zone of server and client; the client's clock is never
// sent.
func TestClocks(t *testing.T) {
	t.Parallel()
	server := maria(t, "--general-log=1", "--log-output=TABLE", "--default-time-zone=+13:00")
	a := join(t, server.DSN("root", "")+"?time_zone=%27-11:30%27&loc=Asia%2FTokyo&parseTime=true", time.Minute)
	b := join(t, server.DSN("root", "")+"?time_zone=%27%2B05:45%27", time.Minute)
	operations(t, server.DSN("root", ""))
	h := a.get(a.req("x"))
	if left := b.inspect("x").Holders[0].Left; left <= 0 || left > time.Minute {
		t.Errorf("%v of a minute are left", left)
	}
	r := b.req("x")
	rep := b.refused(r)
	a.release(h)
	b.release(b.served(r, rep))
	// Statements that do not read the row first contain no time.
	admin := pool(t, server.DSN("root", ""))
	run(t, admin, "SET GLOBAL general_log = 0")
	stamp := value[string](t, admin, "SELECT SUBSTRING(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 1, 5)")
	seen := 0
	rows, err := admin.QueryContext(t.Context(),
		"SELECT CAST(argument AS CHAR) FROM mysql.general_log WHERE command_type IN ('Query', 'Execute') AND argument LIKE '%hf_lock%'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		if _, bounded, is := strings.Cut(text, " FOR "); is && strings.HasPrefix(text, "SET STATEMENT") {
			text = bounded
		}
		switch {
		case strings.HasPrefix(text, "SELECT"), strings.HasPrefix(text, "CREATE"):
		// writes back a row that was read
		case strings.Contains(text, "WHERE name = x'") &&
			strings.Contains(text, "AND ver = "), strings.HasPrefix(text, "INSERT IGNORE"):
		default:
			seen++
			for _, word := range strings.FieldsFunc(text, func(c rune) bool {
				return c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a'
			}) {
				if len(word) == 16 && strings.HasPrefix(word, stamp) && !strings.Contains(text, "AND token") &&
					!strings.Contains(text, "AND w.token") {
					t.Errorf("%s looks like a time in %s", word, text)
				}
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("only %d statements were seen", seen)
	}
}

// Names and waiters' infos are compared byte for byte, whatever their lengths.
func TestNamesAndInfos(t *testing.T) {
	t.Parallel()
	server := maria(t)
	a, b := join(t, server.DSN("root", ""), time.Minute), join(t, server.DSN("root", "")+"?charset=latin1", time.Minute)
	names := []string{
		"a", "A", "a ", "a  ", "\u00e4", "ae", "a\u0308", "a\x00", "a\x00b", "\x00", " ", "a%", "a_", "a'\"\\", "a?b", "\n",
		"😀", "😁", "ß", "ss",
		strings.Repeat("x", driver.MaxName), strings.Repeat("x", driver.MaxName-1) + "X",
		strings.Repeat("😀", driver.MaxName/4),
	}
	tokens := map[string]driver.Hold{}
	for _, name := range names {
		tokens[name] = a.get(once(a.req(name)))
	}
	for _, name := range names {
		r := b.req(name)
		r.Info = strings.Repeat("ä?'%\x00\n", len(name)%100)
		rep := b.refused(r)
		a.release(tokens[name])
		h := b.served(r, rep)
		if rec := a.inspect(name); len(rec.Holders) != 1 || rec.Holders[0].Info != r.Info || rec.Holders[0].Token != h.Token {
			t.Errorf("%q: %+v", name, rec)
		}
	}
	list, err := a.b.List(t.Context(), "", "", len(names)+1)
	if err != nil || len(list) != len(names) {
		t.Errorf("%d names are listed, %v; want %d", len(list), err, len(names))
	}
}

// On MariaDB 10.11, a statement that assigns a column and reads it with VALUES works only if the
// column is not a BLOB. So info is not one.
func TestInfoIsNoBlob(t *testing.T) {
	t.Parallel()
	server := maria(t)
	db := pool(t, server.DSN("root", ""))
	infos := []string{strings.Repeat("long", 50), "short", strings.Repeat("longer", 500), "", "x"}
	for i, info := range infos {
		c := join(t, server.DSN("root", ""), 20*time.Second)
		r := c.req("x")
		r.Info = info
		h := c.get(r)
		holds(t, c, "x", r, h)
		var line []*driver.Request
		var replies []driver.Reply
		for k := range infos {
			waiter := c.req("x")
			waiter.Info = infos[(i+k)%len(infos)] + "!"
			line, replies = append(line, waiter), append(replies, c.refused(waiter))
			stands(t, c, "x", line...)
			holds(t, c, "x", r, h)
		}
		c.release(h)
		for k, r := range line {
			h = c.served(r, replies[k])
			holds(t, c, "x", r, h)
			c.release(h)
		}
		if i == 0 {
			if typ := value[string](t, db,
				"SELECT data_type FROM information_schema.columns WHERE table_name = 'hf_lock' AND column_name = 'info' AND table_schema = 'test'"); typ != "varbinary" {
				t.Errorf("info is a %s", typ)
			}
		}
	}
}
