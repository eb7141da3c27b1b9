//go:build unix

package main_test

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// recipe returns a code block of docs/security.md, with the placeholders of replace filled in.
func recipe(t *testing.T, language string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, begins := strings.Cut(string(text), "\n```"+language+"\n")
	block, _, ends := strings.Cut(block, "\n```\n")
	if !begins || !ends {
		t.Fatalf("docs/security.md has no block %q", language)
	}
	return strings.NewReplacer(replace...).Replace(block)
}

// urls returns the URLs of a recipe, one line for each role: "dashboard: zookeeper://HOST/team".
func urls(recipe string) map[string]string {
	all := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(recipe)); lines.Scan(); {
		if role, url, ok := strings.Cut(lines.Text(), ": "); ok {
			all[role] = strings.TrimSpace(url)
		}
	}
	return all
}

// roles checks that each role can do its work, but nothing else. urls has the URLs of the roles.
func (b *bench) roles(urls map[string]string) {
	b.Helper()
	user, operator, dashboard := b.at(urls["lock-user"]), b.at(urls["operator"]), b.at(urls["dashboard"])
	b.locks(urls["lock-user"])
	b.queue(urls["lock-user"])

	holder := user.stay("kept", "--note", "release 12", "a")
	user.file("kept")
	permit := user.stay("permit", "--limit", "2", "s")
	user.file("permit")
	waiter := user.start("run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN >$D/waited")
	user.waiting("a", 1)
	user.want(0, "latch", "set", "l", "1")
	token := strings.TrimSpace(user.file("kept"))

	for _, b := range []*bench{operator, dashboard} {
		out, _ := b.want(0, "ls", "-o", "name")
		for _, name := range []string{"a", "s", "l"} {
			if !strings.Contains("\n"+out, "\n"+name+"\n") {
				b.Errorf("ls lacks %s: %q", name, out)
			}
		}
		if out, _ = b.want(0, "info", "a"); !strings.Contains(out, "release 12") || !strings.Contains(out, token) {
			b.Error(out)
		}
	}
	for _, args := range [][]string{
		{"run", "-n", "free", "--", "true"}, {"run", "-n", "-s", "free", "--", "true"},
		{"run", "-n", "--limit", "2", "s", "--", "true"}, {"run", "a", "--", "true"},
		{"elect", "boss", "--", "true"}, {"break", "a", "--token", token}, {"sem", "limit", "s", "5"},
		{"sem", "limit", "free", "5"}, {"latch", "set", "other", "1"}, {"latch", "down", "l"}, {"latch", "rm", "l"},
	} {
		dashboard.want(77, args...)
	}
	if out, _ := user.want(0, "ls", "-o", "name"); strings.Contains(out, "free") || strings.Contains(out, "boss") ||
		strings.Contains(out, "other") {
		b.Errorf("the dashboard has left something: %q", out)
	}

	b.examined(user, dashboard)

	operator.want(0, "sem", "limit", "free", "5") // before anybody uses it
	operator.want(0, "sem", "limit", "free", "--clear")
	operator.want(0, "sem", "limit", "s", "5")
	operator.want(0, "latch", "rm", "l")
	operator.want(0, "break", "a", "--token", token)
	if code := waiter.code(); code != 0 {
		b.Errorf("the waiter's exit code is %d: %s", code, waiter.err.String())
	}
	if code := holder.code(); code != 76 {
		b.Errorf("the exit code of the broken holder is %d: %s", code, holder.err.String())
	}
	permit.end()
}

// examined checks that doctor ends with findings for both users, and that only the lock user's
// doctor could try a lock.
func (b *bench) examined(user, dashboard *bench) {
	b.Helper()
	for at, tried := range map[*bench]bool{user: true, dashboard: false} {
		code, out, stderr := at.run("doctor", "--json")
		var r doctorReport
		if err := json.Unmarshal([]byte(out), &r); err != nil || code > 1 || len(r.Findings) < 3 {
			b.Fatalf("doctor: exit code %d: %v: %s%s", code, err, out, stderr)
		}
		i := slices.IndexFunc(r.Findings, func(f doctorFinding) bool { return f.Code == "lock.try" })
		if i < 0 || tried != (r.Findings[i].Severity != "unknown") ||
			tried == strings.Contains(r.Findings[i].Found, "this user may not lock") || r.Findings[i].MayEndanger {
			b.Errorf("tried is not %v: %s", tried, out)
		}
	}
}

func TestRolesOnZooKeeper(t *testing.T) {
	b := newBench(t)
	addr := strings.TrimPrefix(zooKeeper(t).URL(), "zookeeper://")
	b.roles(urls(recipe(t, "urls-zookeeper", "ZOOKEEPER", addr)))
}

// users returns the users of a recipe for Redis in the format of an ACL file.
func users(recipe string) (all []string) {
	for line := range strings.Lines(recipe) {
		all = append(all, "user "+strings.TrimPrefix(strings.TrimSpace(line), "ACL SETUSER "))
	}
	return all
}

func TestRolesOnRedis(t *testing.T) {
	b := newBench(t)
	s := testenv.RedisACL(t, users(recipe(t, "redis")))
	at := urls(recipe(t, "urls-redis", "REDIS", s.Addr))
	b.roles(at)
	dashboard := b.at(at["dashboard"])
	if _, stderr := dashboard.want(77, "latch", "set", "other", "1"); !strings.Contains(stderr,
		"the user lacks a permission") {
		b.Error(stderr)
	}
	if out, _ := dashboard.want(1, "doctor"); !strings.Contains(out, "could not be tried") ||
		!strings.Contains(out, "this user may not lock") {
		b.Error(out)
	}
}

func TestRolesOnRedisCluster(t *testing.T) {
	b := newBench(t)
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: users(recipe(t, "redis-cluster"))})
	b.roles(urls(recipe(t, "urls-redis-cluster", "REDIS", c.Servers[0].Addr)))
}

// A quorum has only mutexes and read/write locks.
func TestRolesOnRedisQuorum(t *testing.T) {
	b := newBench(t)
	var addrs []string
	for range 3 {
		addrs = append(addrs, testenv.RedisACL(t, users(recipe(t, "redis-quorum"))).Addr)
	}
	at := urls(recipe(t, "urls-redis-quorum", "REDIS", strings.Join(addrs, ",")))
	operator, dashboard := b.at(at["operator"]), b.at(at["dashboard"])
	operator.want(0, "init")
	b.queue(at["lock-user"])
	holder := b.at(at["lock-user"]).stay("kept", "--note", "release 12", "a")
	token := strings.TrimSpace(b.file("kept"))
	for _, b := range []*bench{operator, dashboard} {
		if out, _ := b.want(0, "ls", "-o", "name"); out != "a\n" {
			b.Error(out)
		}
		if out, _ := b.want(0, "info", "a"); !strings.Contains(out, "release 12") || !strings.Contains(out, token) {
			b.Error(out)
		}
	}
	for _, args := range [][]string{
		{"run", "-n", "free", "--", "true"}, {"run", "-n", "-s", "free", "--", "true"}, {"elect", "boss", "--", "true"},
		{"break", "a", "--token", token},
	} {
		dashboard.want(77, args...)
	}
	b.examined(b.at(at["lock-user"]), dashboard)
	operator.want(0, "break", "a", "--token", token)
	if code := holder.code(); code != 76 {
		b.Errorf("the exit code of the broken holder is %d: %s", code, holder.err.String())
	}
}

// Users, sentinels and replicas have only the rights of the page, also during a failover.
func TestRolesOnRedisSentinel(t *testing.T) {
	b := newBench(t)
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{
		Users: users(recipe(t, "redis-sentinel")), SentinelUsers: users(recipe(t, "redis-sentinels")),
		Identity: "sentinels:sentinel-password",
		Args:     []string{"--masteruser", "replicas", "--masterauth", "replica-password"},
	})
	var sentinels []string
	for _, r := range s.Sentinels {
		sentinels = append(sentinels, r.Addr)
	}
	at := urls(recipe(t, "urls-redis-sentinel", "SENTINELS", strings.Join(sentinels, ","), "MASTER", s.Master))
	b.roles(at)
	s.Servers[0].Kill() // the sentinels vote for another primary
	s.Promoted(0)
	s.InSync()
	b.at(at["lock-user"]).want(0, "run", "a", "--", "true")
	for _, refused := range s.Refused() {
		// doctor asks for the sentinels' users
		if !strings.HasPrefix(refused, "looks ") && !strings.HasPrefix(refused, "watches acl|") {
			t.Errorf("refused: %s", refused)
		}
	}
}

func TestRolesOnPostgres(t *testing.T) {
	b := newBench(t)
	s := testenv.Postgres(t) // its own server, since roles belong to a whole server
	name := database(t, s)
	b.at(postgresURL(s.Addr, "postgres", name)).want(0, "init")
	admin, err := sql.Open("pgx", postgresURL(s.Addr, "postgres", name))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Exec(recipe(t, "sql-postgres")); err != nil {
		t.Fatal(err)
	}
	b.roles(urls(recipe(t, "urls-postgres", "POSTGRES", s.Addr, "DATABASE", name)))
}

func TestRolesOnMySQL(t *testing.T) {
	b := newBench(t)
	s := testenv.MariaDB(t) // its own server, since users belong to a whole server
	name := database(t, s)
	b.at(mySQLURL(s.Addr, "root", name)).want(0, "init")
	for statement := range strings.SplitSeq(recipe(t, "sql-mysql", "DATABASE", name), ";\n") {
		s.Exec(strings.TrimSuffix(statement, ";"))
	}
	b.roles(urls(recipe(t, "urls-mysql", "MYSQL", s.Addr, "DATABASE", name)))
}

// look is a command that shows its environment and the arguments of all processes.
const look = `env; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '`

// A password in HOLDFAST_URL, or a hash of it, is in no argument of a process, not in the
// environment of a command, and in no output.
func TestSecretStaysInTheEnvironment(t *testing.T) {
	const canary = "c4nary-of-this-test"
	sum, digest := sha256.Sum256([]byte(canary)), sha1.Sum([]byte("locker:"+canary))
	secrets := []string{canary, hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(digest[:])}
	some := [][]string{
		{"run", "a", "--", "sh", "-c", look}, {"elect", "boss", "--", "sh", "-c", look}, {"ls", "-o", "json"}, {"doctor"},
		{"doctor", "--json"}, {"init"},
	}
	all := append(some[:len(some):len(some)], [][]string{
		{"run", "--also", "b", "a", "--", "sh", "-c", look}, {"run", "--limit", "2", "s", "--", "sh", "-c", look},
		{"ls", "-o", "wide"}, {"info", "-o", "json", "a"}, {"info", "-o", "wide", "a"},
		{"leader", "boss"}, {"leader", "-o", "json", "boss"}, {"latch", "set", "l", "1"}, {"latch", "wait", "-w", "0", "l"},
		{"latch", "down", "l"}, {"latch", "wait", "l"}, {"latch", "rm", "l"},
		{"sem", "limit", "a", "3"}, {"break", "a", "--token", "1"}, {"init", "--print"}, {"lab", "list"},
		{"verify", "--duration", "6s", "--processes", "2", "--clients", "1", "--loops", "1", "--names", "1", "--pause",
			"100ms", "--faults", "none", "--hook", "look=sh look"},
		{"version"}, {"help", "run"}, {"completion", "bash"},
	}...)
	for name, c := range map[string]struct {
		url      func(t *testing.T, b *bench) string
		commands [][]string
	}{
		"redis": {func(t *testing.T, _ *bench) string {
			return "redis://locker:" + canary + "@" + testenv.RedisACL(t,
				[]string{"user locker on >" + canary + " ~* &* +@all"}).Addr
		}, all},
		"postgres": {func(t *testing.T, b *bench) string {
			s := postgres(t) // it accepts any password
			return postgresURL(s.Addr, "postgres:"+canary, database(t, s))
		}, some},
		"mysql": {func(t *testing.T, _ *bench) string {
			s := mariaDB(t)
			own := database(t, s)
			s.Exec("CREATE USER "+own+"@'%' IDENTIFIED BY '"+canary+"'", "GRANT ALL ON "+own+".* TO "+own+"@'%'")
			return mySQLURL(s.Addr, own+":"+canary, own)
		}, some},
		"zookeeper": {func(t *testing.T, _ *bench) string {
			return strings.Replace(zooKeeperURL(t), "://", "://locker:"+canary+"@", 1) + "?acl=private"
		}, some},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if err := os.WriteFile(filepath.Join(b.dir, "look"), []byte("("+look+") >>$D/seen\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			b = b.at(c.url(t, b))
			b.run("init")
			for _, args := range c.commands {
				code, stdout, stderr := b.run(args...)
				for _, secret := range secrets {
					if strings.Contains(stdout+stderr, secret) {
						t.Errorf("%q shows %s: %s%s", args, secret, stdout, stderr)
					}
				}
				if args[0] == "run" && (code != 0 || !strings.Contains(stdout, "HOLDFAST_URL=")) {
					t.Errorf("%q: exit code %d: %s", args, code, stderr)
				}
				if args[0] != "verify" {
					continue
				}
				// What the hook of verify, and every process of the machine, sees of a run.
				seen, err := os.ReadFile(filepath.Join(b.dir, "seen"))
				if err != nil || !strings.Contains(string(seen), "verify-worker") || strings.Contains(string(seen), canary) {
					t.Errorf("exit code %d: %s: %v: %s", code, stderr, err, seen)
				}
			}
		})
	}
}
