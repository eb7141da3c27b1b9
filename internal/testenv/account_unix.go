//go:build unix

package testenv

import (
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// ids are the user's and its group's.
func ids(t testing.TB, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("%v; as root a server runs as this user, which comes with its Debian package", err)
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

// runAs lets cmd run as a user. The program must not change to it by itself: it would no
// longer die with this process then.
func runAs(t testing.TB, cmd *exec.Cmd, name string) {
	t.Helper()
	uid, gid := ids(t, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
