package postgres_test

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Every token of a name is larger than earlier ones, whatever happens to the rows.
func TestTokensSurvive(t *testing.T) {
	t.Parallel()
	server := database(t)
	dsn := server.DSN("postgres")
	admin := pool(t, dsn)
	p, q := join(t, dsn, 5*time.Second), join(t, dsn, 300*time.Millisecond) // a crash may lose a release
	last := map[string]uint64{}
	versions := map[string]int64{}
	grow := func(what string, p *party) {
		t.Helper()
		for name, request := range map[string]func() *driver.Request{
			"lock":    func() *driver.Request { return p.mutex("lock") },
			"shared":  func() *driver.Request { return p.shared("shared") },
			"permits": func() *driver.Request { return p.permits("permits", 2, 3) },
		} {
			var h driver.Hold
			until(t, what+": "+name+" is free", func() bool {
				r := request()
				r.Wait = false
				rep, err := p.Acquire(limited(t), r) // a connection may have broken
				h = driver.Hold{Name: name, ID: r.ID, Token: rep.Token}
				return err == nil && rep.Token != 0
			})
			if h.Token <= last[name] {
				t.Errorf("%s: token %d of %q after %d", what, h.Token, name, last[name])
			}
			last[name] = h.Token
			// Versions of a row do not repeat either: clients rely on them to detect changes.
			ver := value[int64](t, p.db, "SELECT ver FROM hf_lock WHERE name = $1", []byte(name))
			if ver <= versions[name] {
				t.Errorf("%s: version %d of %q after %d", what, ver, name, versions[name])
			}
			versions[name] = ver
			p.free(h)
		}
	}
	grow("at first", p)
	grow("release", p)
	for _, r := range []*driver.Request{q.mutex("lock"), q.shared("shared"), q.permits("permits", 2, 3)} {
		last[r.Name] = q.take(r).Token
	}
	grow("expiry", p)
	exec1 := func(s string) { run(t, admin, s); grow(s, p) }
	exec1("VACUUM FULL hf_lock")
	exec1("CLUSTER hf_lock USING hf_lock_pkey")
	exec1("DELETE FROM hf_lock")
	exec1("TRUNCATE hf_lock, hf_done")
	exec1("TRUNCATE hf_lock, hf_done, hf_meta") // the Server is open already
	exec1("INSERT INTO hf_meta (one, version, floor, swept) VALUES (1, 2, 0, 0)")
	server.Restart(true)
	grow("a restart", p)
	server.Restart(false)
	grow("a crash", p)
	dump(t, server)
	grow("a dump brought back", join(t, strings.Replace(dsn, "/postgres?", "/other?", 1), time.Minute))
}

// dump copies the tables into another database, as text.
func dump(t *testing.T, server *testenv.PostgresServer) {
	t.Helper()
	server.Exec("CREATE DATABASE other TEMPLATE template0")
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	program := func(name string) string {
		if all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(all) > 0 {
			return all[len(all)-1]
		}
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	out, err := exec.CommandContext(limited(t), program("pg_dump"), "--host="+host, "--port="+port, "--username=postgres",
		"--table=hf_*", "postgres").Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	restore := exec.CommandContext(limited(t), program("psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1",
		"--host="+host, "--port="+port, "--username=postgres", "other")
	restore.Stdin = strings.NewReader(string(out))
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// A row that is written repeatedly stays in place, and its old versions' space is reused.
func TestNoBloat(t *testing.T) {
	t.Parallel()
	server := database(t, "autovacuum=off", "synchronous_commit=off")
	p, q := join(t, server.DSN("postgres"), time.Hour), join(t, server.DSN("postgres"), time.Hour)
	rounds := testenv.Rounds(300, 10_000)
	for range rounds {
		r := p.mutex("x")
		rep, err := p.Acquire(t.Context(), r)
		if err == nil {
			err = p.Release(t.Context(), driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	held := p.take(p.mutex("x"))
	for range 200 { // with waiters
		r := q.mutex("x")
		wake := q.queue(r)
		p.free(held)
		q.free(q.woken(r, wake))
		held = p.take(p.mutex("x"))
	}
	var updates, hot int64
	until(t, "the server has counted", func() bool {
		if err := p.db.QueryRow("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'hf_lock'").
			Scan(&updates, &hot); err != nil {
			t.Fatal(err)
		}
		return updates >= int64(2*rounds)
	})
	if hot*10 < updates*9 {
		t.Errorf("%d of %d updates were HOT", hot, updates)
	}
	size := value[int64](t, p.db, "SELECT pg_total_relation_size('hf_lock')")
	run(t, p.db, "VACUUM hf_lock")
	if after := value[int64](t, p.db, "SELECT pg_total_relation_size('hf_lock')"); after > 1<<20 {
		t.Errorf("%d bytes after %d updates, and %d after VACUUM", size, updates, after)
	}
	t.Logf("%d of %d updates were HOT; %d bytes", hot, updates, size)
}
