package servers

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Find returns the path of a program, from PATH or else from the first of the folders (patterns)
// that has it.
func Find(program string, folders ...string) (string, error) {
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
	return path, err
}

// FreePorts returns n different ports of the loopback interface on which nobody listens. They are below
// those of outgoing connections, one of which could take the port before its server does.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && tries < 1000 {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, port)
	}
	return ports, nil
}

// Run runs a program to its end and returns its output. When ctx ends, Run kills the program. The
// error contains the output.
func Run(ctx context.Context, cmd *exec.Cmd) (string, error) {
	out := new(output)
	p, err := start(cmd, out)
	if err != nil {
		return "", err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		<-p.done
	}
	if !cmd.ProcessState.Success() {
		return "", fmt.Errorf("%s: %v\n%s", cmd, cmd.ProcessState, out)
	}
	return out.String(), nil
}

// process is a running program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// outputLimit is how long the output of a program is read after its end. A child may have it open for
// ever, for example the server of a script that did not use exec.
const outputLimit = 5 * time.Second

// start runs a program whose output goes to out.
func start(cmd *exec.Cmd, out *output) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, outputLimit
	started := make(chan error, 1)
	Tie(cmd, func() {
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its exit status does not matter
			close(p.done)
		}
	})
	return p, <-started
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
	p.signal(s)
	p.signal(sigCont)
	<-p.done
}

// output keeps the output of a program.
type output struct {
	most int // bytes that are kept at least, from the end; 0: all

	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.most > 0 && o.buf.Len() > 2*o.most {
		o.buf.Next(o.buf.Len() - o.most)
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
