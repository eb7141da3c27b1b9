//go:build unix

package main_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestRedis(t *testing.T) {
	b := newBench(t)
	r := testenv.RedisACL(t, []string{"user locker on >c4nary ~* &* +@all"})
	for _, url := range []string{
		"redis://locker:c4nary@" + r.Addr, "redis://" + r.Addr + "/1", "redis+unix://locker:c4nary@" + r.Socket + "?db=2", "unix://" + r.Socket + "?db=3",
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
	// The URL that the command gets says where, and does not open the door.
	out, _ := b.want(0, "run", "a", "--", "sh", "-c", "echo $HOLDFAST_URL; HOLDFAST_HELD= $H run -n b -- true; echo $?")
	if want := "redis://locker@" + r.Addr + "\n"; !strings.HasPrefix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

func TestRedisTLS(t *testing.T) {
	b := newBench(t)
	b.want(0, "--store", testenv.RedisTLS(t).URL(), "run", "a", "--", "true")
}

// A store that is gone takes the lock with it, in time.
func TestRedisGoesAway(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	p := b.start("--ttl", "1s", "run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
	child := b.pid("ready")
	r.Kill()
	if code := p.code(); code != 76 || running(child) {
		t.Errorf("exit code %d, %v: %s", code, running(child), p.err.String())
	}
	b.want(69, "run", "a", "--", "true")
	b.want(69, "ls")
}

// A killed holder's lock passes on when its lease has run out, and its command is gone.
func TestRedisKilledHolder(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "HOLDFAST_URL="+testenv.Redis(t).URL())
	p := b.start("--ttl", "1s", "run", "a", "--", "sh", "-c", "sleep 1000 & echo $! >$D/inner; echo $$ >$D/ready; wait")
	child, inner := b.pid("ready"), b.pid("inner")
	p.signal(syscall.SIGKILL)
	b.want(0, "run", "-w", "20", "a", "--", "true")
	b.until("the command ends", func() bool { return !running(child) && !running(inner) })
}
