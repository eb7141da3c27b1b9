//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// ids returns the ids of the user and of its group.
func ids(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0,
			fmt.Errorf("%w; a process of root's starts this server as a user of its own, which its Debian package creates", err)
	}
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	return uid, gid, errors.Join(uerr, gerr)
}

// runAs makes cmd run as a user. The program must not change its user itself: it would then no
// longer die with this process.
func runAs(cmd *exec.Cmd, name string) error {
	uid, gid, err := ids(name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return err
}
