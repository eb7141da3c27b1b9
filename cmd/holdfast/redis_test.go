//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestRedis(t *testing.T) {
	b := newBench(t)
	r := testenv.RedisACL(t, []string{"user locker on >c4nary ~* &* +@all"})
	for _, url := range []string{
		"redis://locker:c4nary@" + r.Addr, "redis://" + r.Addr + "/1", "redis+unix://locker:c4nary@" + r.Socket + "?db=2",
		"unix://" + r.Socket + "?db=3",
	} {
		b := &bench{t, b.dir, append(b.env, "HOLDFAST_URL="+url)}
		b.want(7, "run", "a", "--", "sh", "-c", "exit 7")
		// The rest runs inside, while the lock is held.
		out, stderr := b.want(0, "run", "--note", "outer", "a", "--", "env", "HOLDFAST_URL="+url, "sh", "-c",
			`$H run -n a -- true; echo busy $?; $H run a -- true; echo nested $?; $H ls -o name; $H info -o wide a`)
		for _, want := range []string{"busy 75\n", "nested 64\n", "\na\n", "outer"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in %q (%s)", want, out, stderr)
			}
		}
		if strings.Contains(out+stderr, "c4nary") {
			t.Errorf("the password: %s", out+stderr)
		}
	}
	b.env = append(b.env, "HOLDFAST_URL=redis://locker:wr0ng@"+r.Addr)
	if _, stderr := b.want(77, "run", "a", "--", "true"); strings.Contains(stderr, "wr0ng") {
		t.Error(stderr)
	}
	b.env[len(b.env)-1] = "HOLDFAST_URL=redis://locker:c4nary@" + r.Addr
	// The URL for the command names the store, but has no password.
	out, _ := b.want(0, "run", "a", "--", "sh", "-c", "echo $HOLDFAST_URL; HOLDFAST_SECRETS= HOLDFAST_HELD= $H run -n b -- true; echo $?")
	if want := "redis://locker@" + r.Addr + "\n"; !strings.HasPrefix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

func TestRedisTLS(t *testing.T) {
	b := newBench(t)
	b.want(0, "--store", testenv.RedisTLS(t).URL(), "run", "a", "--", "true")
}

// If the store is gone, the command ends before its lock expires.
func TestRedisGoesAway(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	p := b.start("--ttl", "4s", "run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
	child := b.pid("ready")
	r.Kill()
	if code := p.code(); code != 76 || running(child) {
		t.Errorf("exit code %d, %v: %s", code, running(child), p.err.String())
	}
	b.want(69, "run", "a", "--", "true")
	b.want(69, "ls")
}

// The lock of a killed holder is handed over when its lease has expired; its command has ended.
func TestRedisKilledHolder(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "HOLDFAST_URL="+testenv.Redis(t).URL())
	p := b.start("--ttl", "4s", "run", "a", "--", "sh", "-c", "sleep 1000 & echo $! >$D/inner; echo $$ >$D/ready; wait")
	child, inner := b.pid("ready"), b.pid("inner")
	p.signal(syscall.SIGKILL)
	b.want(0, "run", "-w", "20", "a", "--", "true")
	b.until("the command ends", func() bool { return !running(child) && !running(inner) })
}

// replicated waits until the replicas have all data of the primary. Without replicas= in the URL,
// holdfast does not wait for that.
func replicated(t *testing.T, primary *testenv.RedisServer) {
	t.Helper()
	written, _ := strconv.Atoi(primary.Info("replication")["master_repl_offset"])
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		info := primary.Info("replication")
		replicas, behind := 0, 0
		for field, value := range info {
			_, offset, ok := strings.Cut(value, ",offset=")
			if !ok || !strings.HasPrefix(field, "slave") {
				continue
			}
			offset, _, _ = strings.Cut(offset, ",")
			replicas++
			if n, err := strconv.Atoi(offset); err != nil || n < written {
				behind++
			}
		}
		if written > 0 && replicas > 0 && behind == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the replicas have not got what was written up to %d: %v", written, info)
		}
	}
}

// The primary dies under a holder and a waiter, with sentinels and in a Cluster. Each command runs
// only once.
func TestRedisFailover(t *testing.T) {
	for kind, deploy := range map[string]func(t *testing.T) (url string, fail func()){
		"sentinel": func(t *testing.T) (string, func()) {
			s := testenv.RedisSentinel(t, testenv.SentinelSetup{})
			return s.URL(""), func() {
				old := s.Primary()
				replicated(t, s.Servers[old])
				s.Servers[old].Kill()
				s.Promoted(old)
			}
		},
		"cluster": func(t *testing.T) (string, func()) {
			c := testenv.RedisCluster(t, testenv.ClusterSetup{})
			return c.URL(""), func() {
				const tag = "{20}" // of the keys of the name a
				old := c.Owner(tag, 0)
				other := (old + 1) % 3
				replicated(t, c.Servers[old])
				c.Servers[old].Kill()
				c.Promoted(tag, old, other)
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			url, fail := deploy(t)
			b.env = append(b.env, "HOLDFAST_URL="+url)
			holder := b.start("--ttl", "90s", "run", "a", "--", "sh", "-c",
				"echo $$ >$D/ready; until [ -e $D/go ]; do sleep 0.1; done")
			b.pid("ready")
			waiter := b.start("--ttl", "30s", "run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
			b.until("the second waits", func() bool {
				out, _ := b.want(0, "info", "-o", "json", "a")
				var record struct{ Waiting int }
				if err := json.Unmarshal([]byte(out), &record); err != nil {
					t.Fatal(out, err)
				}
				return record.Waiting == 1
			})
			fail()
			if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if code := holder.code(); code != 0 {
				t.Errorf("the holder: exit code %d: %s", code, holder.err.String())
			}
			if code := waiter.code(); code != 0 || waiter.out.String() == "" {
				t.Errorf("the waiter: exit code %d, %q: %s", code, waiter.out.String(), waiter.err.String())
			}
		})
	}
}
