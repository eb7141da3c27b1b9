package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// needs skips the test under -short, and fails it if program is not installed. It returns the
// program's path, from PATH or else from the folders (patterns).
func needs(t testing.TB, program, install string, folders ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: this test starts a %s", program)
	}
	path, err := servers.Find(program, folders...)
	if err != nil {
		t.Fatalf("%v; this test needs %s", err, install)
	}
	return path
}

// needsAll does the same for the programs that find returns.
func needsAll[P any](t testing.TB, install string, find func() (P, error)) P {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: this test starts %s", install)
	}
	programs, err := find()
	if err != nil {
		t.Fatalf("%v; this test needs %s", err, install)
	}
	return programs
}

// FreeAddr returns an address of the loopback interface on which nobody listens. No other test gets
// the address before this test ends.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addrs, release := reserve(t, 1)
	release()
	return addrs[0]
}

// reserve returns n such addresses. No program gets them before release is called.
func reserve(t testing.TB, n int) (addrs []string, release func()) {
	t.Helper()
	all := make([]net.Listener, 0, n)
	for tries := 0; len(all) < n; tries++ {
		// Below the ports of outgoing connections: one of those could take the port while its
		// server is down.
		port := 12000 + rand.IntN(20000)
		if !claim(t, port) {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && tries < 1000 {
			continue
		}
		must(t, err)
		all = append(all, l)
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, func() {
		// A program that is being started has all files of this process for a moment. On a busy machine that lasted
		// until the server found its port taken.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		for _, l := range all {
			_ = l.Close()
		}
	}
}
