//go:build darwin || freebsd

package keeper

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// samePeer returns an error unless the process at the other end belongs to this user. Which process
// that is, these systems do not say in the same way.
func samePeer(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Xucred
	var perr error
	err = raw.Control(func(fd uintptr) {
		peer, perr = unix.GetsockoptXucred(int(fd), 0, unix.LOCAL_PEERCRED)
	})
	if err != nil {
		return 0, err
	}
	if perr != nil {
		return 0, perr
	}
	if int(peer.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("user %d, not %d", peer.Uid, os.Geteuid())
	}
	return 0, nil
}
