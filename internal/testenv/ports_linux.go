package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// claim keeps a port for t against all tests of the machine, even while its server is down. It
// returns false if another test has the port. The claim is a lock on a byte of a file.
func claim(t testing.TB, port int) bool {
	t.Helper()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-testenv-ports-%d", os.Getuid()))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(port), Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		_ = file.Close()
		return false
	}
	t.Cleanup(func() { _ = file.Close() })
	return true
}
