package main_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// asNobody makes the test's place one of the user nobody, who may run holdfast there.
func (b *bench) asNobody() *syscall.Credential {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("only root starts processes of two users")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		b.Skip(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	for _, dir := range []string{filepath.Dir(b.dir), filepath.Dir(binary)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.Chown(b.dir, uid, gid); err != nil {
		b.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
}

// A process of the group that belongs to another user, as one of a setuid program does, cannot be
// signalled. It keeps the lock while it runs, and no longer.
func TestMemberOfAnotherUser(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	p := b.prepare("run", "a", "--", "sh", "-c", "echo $$ >$D/ready; until [ -e $D/end ]; do sleep 0.05; done")
	p.SysProcAttr = &syscall.SysProcAttr{Credential: whom}
	p.begin()
	group := b.pid("ready")
	member := exec.Command("sleep", "1000")
	member.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = member.Process.Kill()
		_ = member.Wait()
	}()
	b.touch("end")
	b.until("the command ends", func() bool { return !running(group) })
	b.until("holdfast says that it waits", func() bool { return strings.Contains(p.err.String(), "still running in its group") })
	// It asks again and again whether somebody is left.
	p.signal(syscall.SIGTERM)
	b.until("holdfast says that it cannot pass on a signal", func() bool { return strings.Contains(p.err.String(), "may not signal") })
	select {
	case <-p.done:
		t.Fatalf("holdfast has ended beside a process of its group: %s", p.err.String())
	default:
	}
	// It has ended, and nobody has waited for it yet.
	if err := member.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}
