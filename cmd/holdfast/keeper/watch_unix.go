//go:build unix

package keeper

import "syscall"

// alive returns an error if there is no process with this number.
func alive(pid int) error {
	if err := syscall.Kill(pid, 0); err != nil && err != syscall.EPERM {
		return err
	}
	return nil
}
