//go:build unix

package testenv

import (
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// ids returns the ids of the user and of its group.
func ids(t testing.TB, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("%v; tests that run as root start this server as a user of its own, which its Debian package creates", err)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err = strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

// runAs makes cmd run as a user. The program must not change its user itself: it would then no
// longer die with this process.
func runAs(t testing.TB, cmd *exec.Cmd, name string) {
	t.Helper()
	uid, gid := ids(t, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
