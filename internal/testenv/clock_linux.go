package testenv

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed testdata/clock.c
var clockSource string

// Clock is a wall clock for one server, which can jump. The server's other clocks are the
// machine's.
type Clock struct {
	env   []string // of programs that use the clock
	shift *atomic.Int64
}

// OwnClock gives the server a wall clock of its own. It restarts the server, gracefully, with a
// small library in front of the C library. It needs gcc.
func (s *server) OwnClock() *Clock {
	s.t.Helper()
	c := newClock(s.t)
	s.Stop()
	s.mu.Lock()
	s.env = append(s.env, c.env...)
	s.mu.Unlock()
	s.Start()
	return c
}

// Jump sets the clock forward by d, or back.
func (c *Clock) Jump(d time.Duration) { c.shift.Add(int64(d)) }

func newClock(t testing.TB) *Clock {
	t.Helper()
	gcc := needs(t, "gcc", "gcc (Debian, Ubuntu: apt-get install gcc)")
	dir, err := os.MkdirTemp("", "clock")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, b []byte) {
		t.Helper()
		must(t, os.WriteFile(path(name), b, 0o600))
	}
	write("clock.c", []byte(clockSource))
	write("shift", make([]byte, 8))
	finish(t, exec.Command(gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", path("clock.so"),
		path("clock.c"), "-ldl"))
	// The server may run as another user.
	for name, mode := range map[string]os.FileMode{"": 0o755, "clock.so": 0o755, "shift": 0o644} {
		must(t, os.Chmod(path(name), mode))
	}
	file, err := os.OpenFile(path("shift"), os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = file.Close() }()
	// A page is aligned, as an int64 must be.
	memory, err := unix.Mmap(int(file.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return &Clock{
		env:   []string{"LD_PRELOAD=" + path("clock.so"), "HOLDFAST_TEST_CLOCK=" + path("shift")},
		shift: (*atomic.Int64)(unsafe.Pointer(&memory[0])),
	}
}
