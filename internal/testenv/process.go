package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// needs skips the test under -short, and fails it if program is not installed. It returns the
// program's path, from PATH or else from the last of the folders (patterns) that has it.
func needs(t testing.TB, program, install string, folders ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: this test starts a %s", program)
	}
	path, err := exec.LookPath(program)
	for _, f := range folders {
		if err == nil {
			break
		}
		all, _ := filepath.Glob(filepath.Join(f, program)) // a bad pattern matches nothing
		for _, p := range slices.Backward(all) {           // the newest version first
			if path, err = exec.LookPath(p); err == nil {
				break
			}
		}
	}
	if err != nil {
		t.Fatalf("%v; this test needs %s", err, install)
	}
	return path
}

// freeAddr returns an address of the loopback interface on which nobody listens. No other test gets
// the address before this test ends.
func freeAddr(t testing.TB) string {
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
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, func() {
		for _, l := range all {
			_ = l.Close()
		}
	}
}

// process is a server process.
type process struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when it has ended
}

// start runs a program whose output goes to out.
func start(t testing.TB, cmd *exec.Cmd, out *output) *process {
	t.Helper()
	p := &process{cmd: cmd, out: out, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	started := make(chan error, 1)
	bound(cmd, func() {
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its exit status does not matter
			close(p.done)
		}
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return p
}

// waitFor waits until ready returns nil.
func (p *process) waitFor(t testing.TB, what string, ready func() error) {
	t.Helper()
	const limit = time.Minute // a JVM starts slowly on a busy machine
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not serve: %v\n%s", what, err, p.out.String())
		}
		select {
		case <-p.done:
			t.Fatalf("%s has ended:\n%s", what, p.out.String())
		case <-tick.C:
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

// end sends a signal that ends the process, frozen or not, and waits for its end.
func (p *process) end(s syscall.Signal) {
	if p == nil {
		return
	}
	p.signal(s)
	p.signal(sigCont)
	<-p.done
}
