package keeper

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// samePeer returns an error unless the process at the other end belongs to this user.
func samePeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var perr error
	err = raw.Control(func(fd uintptr) {
		peer, perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return err
	}
	if perr != nil {
		return perr
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d, not %d", peer.Uid, os.Geteuid())
	}
	return nil
}
