//go:build unix

package main_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// doctorReport is the output of --json.
type doctorReport struct {
	Schema, Store, Place, Error string
	TTLMS                       int64 `json:"ttl_ms"`
	Sound                       bool
	Findings                    []doctorFinding
}

type doctorFinding struct {
	Code, Severity, Server, Found, Why, Do string
	MayEndanger                            bool `json:"may_endanger"`
	Accepted                               bool
}

// doctor runs holdfast doctor --json.
func (b *bench) doctor(code int, args ...string) (r doctorReport) {
	b.Helper()
	out, stderr := b.want(code, append([]string{"doctor", "--json"}, args...)...)
	if strings.Contains(out+stderr, "c4nary") {
		b.Errorf("doctor shows the password: %s%s", out, stderr)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if r.Schema != "holdfast/v1" || r.Sound != (code == 0) || (r.Error != "") != (code > 1) ||
		(stderr != "") != (code > 1) {
		b.Errorf("exit code %d: %+v, stderr %q", code, r, stderr)
	}
	for i, f := range r.Findings {
		if f.Code == "" || f.Found == "" || (f.Severity == "fine") != (f.Why == "" && f.Do == "") {
			b.Errorf("incomplete: %+v", f)
		}
		if i > 0 && f.Severity != "fine" && r.Findings[i-1].Severity == "fine" {
			b.Errorf("%s comes after fine findings", f.Code)
		}
	}
	return r
}

// notFine returns the findings that are not fine, without the name of the store.
func (r *doctorReport) notFine() string {
	var all []string
	for _, f := range r.Findings {
		// The tests ignore the speed of the machine, and that their servers need no password.
		if f.Severity == "unknown" && strings.HasSuffix(f.Code, ".users") && strings.Contains(f.Found, "needs no password") {
			continue
		}
		if f.Severity != "fine" && !strings.HasSuffix(f.Code, ".latency") && (f.Severity != "slows" || f.Code != "lock.try") {
			text := f.Severity + " " + f.Code[strings.IndexByte(f.Code, '.')+1:]
			if f.Accepted {
				text += " accepted"
			}
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func (b *bench) notFine(code int, want string, args ...string) {
	b.Helper()
	r := b.doctor(code, args...)
	if got := r.notFine(); got != want {
		b.Errorf("doctor %q: %q, want %q: %+v", args, got, want, r.Findings)
	}
}

func TestDoctorRedis(t *testing.T) {
	b := newBench(t)
	good := []string{"--appendonly", "yes", "--appendfsync", "always"}
	bad := testenv.RedisACL(t, []string{"user locker on >c4nary ~* &* +@all",
		"user few on >c4nary ~* &* +@all -config -info -acl"},
		"--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
	bad.Do("ACL SETUSER default resetpass >c4nary")
	url := "redis://locker:c4nary@" + bad.Addr
	r := b.doctor(1, "--store", url)
	if got := r.notFine(); got != "endangers eviction, endangers persistence" || r.Store != "redis" ||
		r.Place != "redis:"+bad.Addr+"#0" || r.TTLMS != 15000 {
		t.Errorf("%q: %+v", got, r)
	}
	out, stderr := b.want(1, "doctor", "--store", url)
	text := regexp.MustCompile(
		`(?s)^redis:\S+, for leases of 15s\n\nENDANGERS  redis.eviction\n  found    maxmemory-policy is allkeys-lru.*\n  do       CONFIG SET maxmemory-policy noeviction.*` +
			`ENDANGERS  redis.persistence\n.*\nfine       redis.scripts: .*\n\n2 endanger locks, 0 unknown, \d slow them, \d+ fine\n$`)
	if !text.MatchString(out) || stderr != "" {
		t.Errorf("%s%s", out, stderr)
	}
	// Accepted findings do not count.
	b.notFine(0, "endangers eviction accepted, endangers persistence accepted", "--store", url, "--accept",
		"redis.eviction,redis.persistence")
	b.notFine(1, "endangers eviction, endangers persistence accepted", "--store", url, "--accept", "redis.persistence")
	if out, _ := b.want(0, "doctor", "--store", url, "--accept", "redis.eviction", "--accept",
		"redis.persistence"); !strings.Contains(out, "accepted   redis.eviction\n") ||
		!regexp.MustCompile(`\n0 endanger locks, 0 unknown, \d slow them, \d+ fine, 2 accepted\n$`).MatchString(out) {
		t.Error(out)
	}
	// Unknown settings may be dangerous, and their texts have no password.
	few := strings.Replace(url, "locker", "few", 1)
	b.notFine(1,
		"unknown connections, unknown eviction, unknown flushes, unknown output-buffer, unknown persistence, unknown replicas, unknown role, unknown script-limit, unknown users, unknown version", "--store", few)
	out, stderr = b.want(1, "doctor", "--store", few)
	if !strings.HasPrefix(out[strings.IndexByte(out, '\n')+2:], "UNKNOWN !  redis.eviction\n") ||
		!strings.Contains(out, "\nUNKNOWN    redis.role\n") || strings.Contains(out+stderr, "c4nary") {
		t.Error(out + stderr)
	}
	for _, args := range [][]string{{"--json"}, {"-o", "text"}, {"--json", "--accept", "redis.role"}} {
		if out, stderr := b.want(77, append([]string{"doctor", "--store", "redis://locker:wr0ng@" + bad.Addr},
			args...)...); strings.Contains(out+stderr, "wr0ng") {
			t.Error(out + stderr)
		}
	}

	sound := testenv.Redis(t, good...)
	b.notFine(0, "", "--store", sound.URL())
	if r := b.doctor(0, "--store", sound.URL(), "--no-try", "--ttl", "3s"); slices.ContainsFunc(r.Findings,
		func(f doctorFinding) bool { return f.Code == "lock.try" }) || r.TTLMS != 3000 {
		t.Errorf("%+v", r)
	}
	if out, _ := b.want(0, "ls", "--store", sound.URL(), "-o", "name"); out != "" {
		t.Errorf("left behind: %s", out)
	}
	// A replica, and a server that is gone.
	host, port, _ := strings.Cut(sound.Addr, ":")
	replica := testenv.Redis(t, append([]string{"--replicaof", host + " " + port}, good...)...)
	if r := b.doctor(77, "--store", replica.URL()); !strings.Contains(r.Error, "its primary is "+sound.Addr) {
		t.Errorf("%+v", r)
	}
	replica.Kill()
	if r := b.doctor(69, "--store", replica.URL()); len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
	if out, stderr := b.want(69, "doctor", "--store", replica.URL()); out != "" || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%q %q", out, stderr)
	}
}

func TestDoctorUsage(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "redis.replicas", []string{"--accept", "replicas"}}, {78, "scheme", []string{"--store", "here"}},
	} {
		if _, stderr := b.want(c.code, append([]string{"doctor"}, c.args...)...); !strings.Contains(stderr, c.says) {
			t.Errorf("%q: %s", c.args, stderr)
		}
	}
	b.notFine(1, "endangers scope", "--store", "memory:")
}

func TestDoctorSQLite(t *testing.T) {
	b := newBench(t)
	r := b.doctor(0)
	if r.Store != "sqlite" || !strings.HasSuffix(r.Place, "/holdfast/locks.db") ||
		strings.Contains(r.notFine(), "endangers") {
		t.Errorf("%+v", r)
	}
	folder := filepath.Join(b.dir, "open")
	if err := errors.Join(os.Mkdir(folder, 0o777), os.Chmod(folder, 0o777)); err != nil {
		t.Fatal(err)
	}
	b.want(0, "run", "--store", "sqlite:open/locks.db", "a", "--", "true")
	if r := b.doctor(1, "--store", "sqlite:open/locks.db"); !strings.Contains(r.notFine(), "endangers permissions") {
		t.Errorf("%+v", r)
	}
	// In a time namespace, which a container may have. Not every machine lets tests create one.
	apart := exec.Command("unshare", "--time", "--boottime", "100", binary, "doctor", "--json", "--no-try")
	apart.Env, apart.Dir = b.env, b.dir
	out, err := apart.Output()
	if exec.Command("unshare", "--time", "true").Run() != nil {
		t.Skip("time namespaces cannot be created here")
	}
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "time namespace") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestDoctorMySQL(t *testing.T) {
	b := newBench(t)
	m := testenv.MariaDB(t, "--innodb-flush-log-at-trx-commit=1")
	u := mySQLURL(m.Addr, "root", "test")
	if r := b.doctor(77, "--store", u); !strings.Contains(r.Error, "holdfast init --store URL") || len(r.Findings) < 5 {
		t.Errorf("%+v", r)
	}
	b.initialise(u)
	m.Exec("CREATE USER locker@'%' IDENTIFIED BY 'c4nary'")
	m.Exec(mySQLGrants(t, "test", "locker@'%'")...)
	b.notFine(0, "", "--store", mySQLURL(m.Addr, "locker:c4nary", "test"))
	m.Exec("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	b.notFine(1, "endangers durability", "--store", u)
	m.Exec("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL read_only = ON")
	if r := b.doctor(77, "--store", mySQLURL(m.Addr, "locker:c4nary", "test")); r.notFine() != "endangers read-only" {
		t.Errorf("%+v", r)
	}
}

func TestDoctorPostgres(t *testing.T) {
	b := newBench(t)
	p := testenv.Postgres(t, "fsync=on")
	u := postgresURL(p.Addr, "postgres", "postgres")
	b.initialise(u)
	b.notFine(0, "", "--store", u)
	// Behind a pooler waiters poll, which endangers nothing.
	r := b.doctor(0, "--store", postgresURL(testenv.PgBouncer(t, p, "transaction").Addr, "postgres", "postgres"))
	if r.notFine() != "slows wakeups" || !slices.ContainsFunc(r.Findings, func(f doctorFinding) bool {
		return f.Code == "postgres.wakeups" && strings.Contains(f.Found, "listen= in the URL")
	}) {
		t.Errorf("%+v", r)
	}
	bad := testenv.Postgres(t, "full_page_writes=off") // and fsync=off
	u = postgresURL(bad.Addr, "postgres", "postgres")
	b.want(0, "init", "--store", u)
	b.notFine(1, "endangers durability, endangers full-page-writes", "--store", u)
}

func TestDoctorZooKeeper(t *testing.T) {
	b := newBench(t)
	// The shared server does not force its log to the disk.
	r := b.doctor(1, "--store", zooKeeperURL(t)+"?session=6s")
	if got := r.notFine(); got != "endangers fsync, slows ensemble" {
		t.Errorf("%q: %+v", got, r)
	}
}

func doctorEnsemble(b *bench, e *testenv.ZooKeeperEnsembleServers) {
	url := strings.Replace(e.URL(), "://", "://locker:c4nary@", 1) + "/examined?acl=private"
	r := b.doctor(0, "--store", url, "--ttl", "6s")
	if got := r.notFine(); got != "" && got != "slows version" { // the installed version may be old
		b.Errorf("%q: %+v", got, r)
	}
}

// A signal ends doctor and verify even while a server does not answer.
func TestDoctorSignal(t *testing.T) {
	b := newBench(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, args := range [][]string{{"doctor", "--store", "redis://" + silent.Addr().String()},
		{"verify", "--store", "postgres://u@" + silent.Addr().String() + "/d"}} {
		p := b.start(args...)
		c, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGINT)
		if code := p.code(); code != 128+2 || p.out.String()+slow.ReplaceAllString(p.err.String(), "") != "" {
			t.Errorf("%v: exit code %d: %s", args, code, p.err.String())
		}
		_ = c.Close()
	}
}
