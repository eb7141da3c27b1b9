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

// asNobody gives the folder of the test to the user nobody, and returns the credentials of that
// user.
func (b *bench) asNobody() *syscall.Credential {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("only root can start processes of two users")
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

// holdfast cannot signal a process of its group that belongs to another user, such as a setuid
// program. The process keeps the lock only while it runs.
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
	b.until("holdfast reports that it waits", func() bool {
		return strings.Contains(p.err.String(), "still running in its group")
	})
	// holdfast keeps checking whether the group has members.
	p.signal(syscall.SIGTERM)
	b.until("holdfast reports that it cannot pass on a signal",
		func() bool { return strings.Contains(p.err.String(), "may not signal") })
	select {
	case <-p.done:
		t.Fatalf("holdfast has ended before a process of its group: %s", p.err.String())
	default:
	}
	// The member is a zombie until the deferred Wait.
	if err := member.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}
