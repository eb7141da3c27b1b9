package redislock_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

var good = []string{"--appendonly", "yes", "--appendfsync", "always"}

// diagnose returns the findings by code. There must be one of each.
func diagnose(t testing.TB, conn redislock.Conn, ttl time.Duration) map[string]driver.Finding {
	t.Helper()
	list, err := diagnoseAll(t, conn, ttl)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]driver.Finding{}
	for _, f := range list {
		if _, twice := by[f.Code]; twice {
			t.Errorf("%s comes twice", f.Code)
		}
		if f.Found == "" || (f.Severity != driver.Fine) != (f.Why != "" && f.Do != "") {
			t.Errorf("incomplete: %+v", f)
		}
		by[f.Code] = f
	}
	return by
}

func diagnoseAll(t testing.TB, conn redislock.Conn, ttl time.Duration) ([]driver.Finding, error) {
	t.Helper()
	b := redislock.New(conn, nil)
	t.Cleanup(func() { _ = b.Close() })
	return b.Diagnose(within(t, soon), ttl)
}

// unlike are the codes and severities of findings that are not fine.
func unlike(by map[string]driver.Finding) string {
	var all []string
	for code, f := range by {
		if f.Severity != driver.Fine && !ofTheMachine(f) {
			all = append(all, strings.TrimPrefix(code, "redis.")+" "+f.Severity.String())
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// ofTheMachine reports findings that depend on the machine, and that test servers need no password.
func ofTheMachine(f driver.Finding) bool {
	return f.Code == "redis.latency" || f.Code == "redis.users" && f.Severity == driver.Unclear &&
		strings.Contains(f.Found, "needs no password")
}

func TestDoctorSound(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, good...)
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		t.Run(name, func(t *testing.T) {
			by := diagnose(t, dial(t, server.Addr), 15*time.Second)
			if got := unlike(by); got != "" {
				t.Errorf("not fine: %s", got)
			}
			want := []string{"redis.clock", "redis.cluster", "redis.connections", "redis.disk", "redis.eviction",
				"redis.flushes", "redis.latency", "redis.output-buffer",
				"redis.persistence", "redis.records", "redis.replicas", "redis.role", "redis.script-limit", "redis.scripts",
				"redis.users", "redis.version", "redis.wakeups"}
			if got := slices.Sorted(maps.Keys(by)); !slices.Equal(got, want) {
				t.Errorf("looked at %q, want %q", got, want)
			}
			if s := by["redis.role"].Server; s != server.Addr {
				t.Errorf("of server %q, want %q", s, server.Addr)
			}
		})
	}
}

func TestDoctorSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
		says string // in the findings that are not fine
	}{
		"cache": {append([]string{"--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"}, good...),
			"eviction endangers", "allkeys-lru, with a maxmemory of 50 MiB"},
		"volatile": {append([]string{"--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl"}, good...),
			"eviction endangers", "noeviction"},
		"no limit": {append([]string{"--maxmemory-policy", "allkeys-lru"}, good...), "", ""},
		"full":     {append([]string{"--maxmemory", "1mb"}, good...), "eviction slows", "are in use"},
		"default":  {[]string{"--save", "3600 1"}, "persistence endangers", "save 3600 1"},
		"everysec": {[]string{"--appendonly", "yes"}, "persistence endangers", "appendfsync is everysec"},
		"never":    {[]string{"--appendonly", "yes", "--appendfsync", "no"}, "persistence endangers", "appendfsync always"},
		"rewrite": {append([]string{"--no-appendfsync-on-rewrite", "yes"}, good...), "persistence endangers",
			"no-appendfsync-on-rewrite no"},
		"clients": {append([]string{"--maxclients", "8"}, good...), "connections slows", "raise maxclients"},
		"buffer": {append([]string{"--client-output-buffer-limit", "pubsub 100kb 50kb 1"}, good...), "output-buffer slows",
			"pubsub 102400 51200 1"},
		"replicas": {append([]string{"--min-replicas-to-write", "2"}, good...), "min-replicas slows",
			"reaches 0 replicas, and min-replicas-to-write asks for 2"},
		"scripts": {append([]string{"--lua-time-limit", "5"}, good...), "script-limit slows", "BUSY"},
		"renamed": {append([]string{"--rename-command", "CONFIG", ""}, good...),
			"output-buffer unknown, persistence unknown, script-limit unknown", "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by := diagnose(t, dialRueidis(t, testenv.Redis(t, c.args...).Addr), 15*time.Second)
			// If scripts may run for only 5 ms, or memory is full, other findings do not matter.
			if got := unlike(by); got != c.want {
				t.Errorf("not fine: %q, want %q", got, c.want)
			}
			text := ""
			for _, f := range by {
				if f.Severity != driver.Fine {
					text += f.Found + f.Why + f.Do
				}
			}
			if !strings.Contains(text, c.says) {
				t.Errorf("%q is not in %q", c.says, text)
			}
		})
	}
}

// askUsers are the permissions to find out what other users may do.
const askUsers = "+acl|whoami +acl|users +acl|getuser +acl|dryrun"

// A user with only the documented permissions gets no answers, and may lock; with more permissions
// the doctor finds out everything.
func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	more := strings.Replace(aclRule, "user holdfast", "user asker", 1) + " +info +config|get " + askUsers
	server := testenv.RedisACL(t, []string{aclRule, more}, good...)
	dial := func(user string) redislock.Conn {
		return dialURL(t, "redis://"+user+":secret@"+server.Addr)
	}
	by := diagnose(t, dial("holdfast"), 15*time.Second)
	const want = "connections unknown, eviction unknown, flushes unknown, output-buffer unknown, persistence unknown, replicas unknown, role unknown, script-limit unknown, users unknown, version unknown"
	if got := unlike(by); got != want {
		t.Errorf("not fine: %q, want %q", got, want)
	}
	for code, may := range map[string]bool{"redis.eviction": true, "redis.persistence": true, "redis.replicas": true,
		"redis.version": false, "redis.role": false, "redis.users": false} {
		if f := by[code]; f.Danger() != may || !strings.Contains(f.Found, "NOPERM") ||
			!strings.Contains(f.Do, "ACL SETUSER") {
			t.Errorf("%+v", f)
		}
	}
	server.Do("ACL SETUSER default resetpass >secret") // the tests' own user, which is open
	if got := unlike(diagnose(t, dial("asker"), 15*time.Second)); got != "" {
		t.Errorf("not fine with the rights to ask: %q", got)
	}
	// A missing permission that locking needs is one finding. The other checks are made.
	for command, doing := range map[string]string{"publish": "publishing", "pubsub|numsub": "counting subscribers"} {
		poor := testenv.RedisACL(t, []string{strings.Replace(aclRule, " +"+command, "", 1)}, good...)
		conn := dialURL(t, "redis://holdfast:secret@"+poor.Addr)
		by := diagnose(t, conn, time.Second)
		if f := by["redis.wakeups"]; f.Severity != driver.Unclear || !strings.Contains(f.Found, doing+": ") ||
			!strings.Contains(f.Found, "NOPERM") || by["redis.clock"].Code == "" {
			t.Errorf("without %s: %+v, want unknown, and a finding about the clock", command, f)
		}
	}
}

// replicaOf starts a replica and waits until it has its primary's data.
func replicaOf(t *testing.T, primary *testenv.RedisServer, args ...string) *testenv.RedisServer {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	r := testenv.Redis(t, append([]string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"},
		args...)...)
	conn := dialRueidis(t, r.Addr)
	defer func() { _ = conn.Close() }()
	for ctx := within(t, soon); ; {
		a := redislock.Ask(ctx, conn.(redislock.Asker), "INFO", "replication")
		if strings.Contains(a[0].Value.Text, "master_link_status:up") {
			return r
		}
		select {
		case <-time.After(10 * time.Millisecond): // there is no event for it
		case <-ctx.Done():
			t.Fatalf("no replica: %+v", a)
		}
	}
}

func TestDoctorReplicas(t *testing.T) {
	t.Parallel()
	args := append([]string{"--repl-diskless-sync-delay", "0"}, good...)
	primary := testenv.Redis(t, args...)
	replica := replicaOf(t, primary, good...)
	if got := unlike(diagnose(t, dialRueidis(t, primary.Addr),
		15*time.Second)); got != "cutoff endangers, replicas endangers" {
		t.Errorf("a primary: %q", got)
	}
	primary.Do("CONFIG SET min-replicas-to-write 1")
	by := diagnose(t, dialGoRedis(t, primary.Addr), 15*time.Second)
	if got := unlike(by); got != "replicas endangers" || by["redis.cutoff"].Found == "" {
		t.Errorf("one that stops without replicas: %q", got)
	}
	_, err := diagnoseAll(t, dialRueidis(t, replica.Addr), 15*time.Second)
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "its primary is 127.0.0.1:") {
		t.Errorf("a replica: %v, want ErrRefused and its primary", err)
	}
	replica.Do("CONFIG SET replica-read-only no")
	by = diagnose(t, dialRueidis(t, replica.Addr), 15*time.Second)
	if by["redis.role"].Severity != driver.Endangers {
		t.Errorf("a replica that takes writes: %+v", by["redis.role"])
	}
	// A message published at the primary arrives at the replica's subscribers, and is not counted.
	conn := otherWay{dialRueidis(t, primary.Addr), dialRueidis(t, replica.Addr)}
	if f := diagnose(t, conn, 15*time.Second)["redis.wakeups"]; f.Severity != driver.Slows ||
		!strings.Contains(f.Found, "counted no subscriber") {
		t.Errorf("a subscription elsewhere: %+v", f)
	}
}

// TestDoctorNoReplicaConfirms: one replica has to confirm each grant, and there is none.
func TestDoctorNoReplicaConfirms(t *testing.T) {
	t.Parallel()
	by := map[string]driver.Finding{}
	for _, f := range diagnoseWaiting(t, dialRueidis(t, testenv.Redis(t, good...).Addr), 1) {
		by[f.Code] = f
	}
	if f := by["redis.replicas"]; unlike(by) != "replicas slows" || f.Why != "no lock can be granted or kept" {
		t.Errorf("not fine: %q, %+v", unlike(by), f)
	}
}

// otherWay subscribes at another server than it asks, as behind a proxy that spreads connections.
type otherWay struct {
	redislock.Conn
	other redislock.Conn
}

func (o otherWay) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return o.other.Subscribe(ctx, channel, message, again)
}

func (o otherWay) AskAll(ctx context.Context, servers []string, commands ...[]string) []redislock.Answers {
	return o.Conn.(redislock.Asker).AskAll(ctx, servers, commands...)
}

func (o otherWay) Close() error { return errors.Join(o.Conn.Close(), o.other.Close()) }

func TestDoctorWakeupsGetLost(t *testing.T) {
	t.Parallel()
	conn := otherWay{dialRueidis(t, testenv.Redis(t, good...).Addr), dialRueidis(t, testenv.Redis(t).Addr)}
	by := diagnose(t, conn, 15*time.Second)
	if got := unlike(by); got != "wakeups slows" {
		t.Errorf("not fine: %q", got)
	}
}

// scriptsOnly is a foreign Conn, which is no Asker.
type scriptsOnly struct{ redislock.Conn }

func TestDoctorWithoutAsker(t *testing.T) {
	t.Parallel()
	by := diagnose(t, scriptsOnly{dialRueidis(t, testenv.Redis(t, good...).Addr)}, 15*time.Second)
	if f := by["redis.settings"]; len(by) != 2 || !f.Danger() || by["redis.scripts"].Severity != driver.Fine {
		t.Errorf("%+v", by)
	}
}

func TestDoctorNodeOfACluster(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, append([]string{"--cluster-enabled", "yes"}, good...)...)
	server.Do("CLUSTER ADDSLOTSRANGE 0 16383")
	for ctx := within(t, soon); server.Do("SET x 1") != "+OK"; {
		select {
		case <-time.After(10 * time.Millisecond): // there is no event for it
		case <-ctx.Done():
			t.Fatal(server.Do("SET x 1"))
		}
	}
	if got := unlike(diagnose(t, dialRueidis(t, server.Addr), 15*time.Second)); got != "cluster slows" {
		t.Errorf("not fine: %q", got)
	}
}

func TestDoctorUnreachable(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, good...)
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		conn := dial(t, server.Addr)
		server.Kill()
		if list, err := diagnoseAll(t, conn, time.Second); !errors.Is(err, driver.ErrUnavailable) &&
			!errors.Is(err, driver.ErrUncertain) || len(list) != 0 {
			t.Errorf("%s, killed: %v, %v", name, list, err)
		}
		server.Start()
		conn = dial(t, server.Addr)
		server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		b := redislock.New(conn, nil)
		if _, err := b.Diagnose(ctx, time.Second); !errors.Is(err, driver.ErrUnavailable) &&
			!errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%s, frozen: %v", name, err)
		}
		cancel()
		server.Continue()
		_ = b.Close()
		if _, err := b.Diagnose(t.Context(), time.Second); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s, closed: %v", name, err)
		}
	}
}

// Answers are the same through both adapters, whatever their kind.
func TestAsk(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, server.Addr)
			defer func() { _ = conn.Close() }()
			ask := func(words ...string) redislock.Answer {
				t.Helper()
				all := redislock.Ask(within(t, soon), conn.(redislock.Asker), words...)
				if len(all) != 1 || all[0].Server != server.Addr {
					t.Fatalf("%q: %+v", words, all)
				}
				return all[0]
			}
			if a := ask("CONFIG", "GET", "maxmemory-p*"); a.Err != nil || len(a.Value.List) != 2 ||
				a.Value.List[0].Text != "maxmemory-policy" || a.Value.List[1].Text != "noeviction" {
				t.Errorf("a map: %+v", a)
			}
			if a := ask("INFO", "server"); a.Err != nil || a.Value.Kind != redislock.Text ||
				!regexp.MustCompile(`^# Server\r\nredis_version:\d`).MatchString(a.Value.Text) {
				t.Errorf("a long text: %+v", a)
			}
			if a := ask("PING"); a.Value.Text != "PONG" {
				t.Errorf("a word: %+v", a)
			}
			if a := ask("GET", "nothing"); a.Err != nil || a.Value.Kind != redislock.Nothing {
				t.Errorf("nothing: %+v", a)
			}
			if a := ask("DBSIZE"); a.Err != nil || a.Value.Kind != redislock.Int {
				t.Errorf("a number: %+v", a)
			}
			if a := ask("ROLE"); a.Err != nil || len(a.Value.List) != 3 || a.Value.List[1].Kind != redislock.Int {
				t.Errorf("a list: %+v", a)
			}
			if a := ask("NOSUCH"); !errors.Is(a.Err, driver.ErrRefused) {
				t.Errorf("an error: %+v", a)
			}
			askAll := func(servers []string, commands ...[]string) redislock.Answers {
				t.Helper()
				all := conn.(redislock.Asker).AskAll(within(t, soon), servers, commands...)
				if len(all) != 1 || len(all[0].Results) != len(commands) {
					t.Fatalf("%q at %q: %+v", commands, servers, all)
				}
				return all[0]
			}
			if a := askAll(nil); a.Server != server.Addr {
				t.Errorf("no command: %+v", a)
			}
			one := askAll([]string{server.Addr, "elsewhere:1"}, []string{"PING"}, []string{"NOSUCH"}, []string{"DBSIZE"})
			if r := one.Results; one.Server != server.Addr || r[0].Value.Text != "PONG" || r[0].Err != nil ||
				!errors.Is(r[1].Err, driver.ErrRefused) || r[2].Value.Kind != redislock.Int || r[2].Err != nil {
				t.Errorf("several commands: %+v", one)
			}
			one = askAll([]string{"elsewhere:1"}, []string{"PING"}, []string{"PING"})
			if r := one.Results; one.Server != "" || !errors.Is(r[0].Err, driver.ErrUnavailable) || r[1].Err == nil {
				t.Errorf("another server: %+v", one)
			}
		})
	}
}
