package keeper

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// samePeer returns the process at the other end, 0 if it is out of sight. It returns an error unless
// the process belongs to this user.
func samePeer(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var perr error
	err = raw.Control(func(fd uintptr) {
		peer, perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
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
	return int(peer.Pid), nil
}
