//go:build darwin || freebsd

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
	var peer *unix.Xucred
	var perr error
	err = raw.Control(func(fd uintptr) {
		peer, perr = unix.GetsockoptXucred(int(fd), 0, unix.LOCAL_PEERCRED)
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
