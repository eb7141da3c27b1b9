package example

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

// Process is another process of an example: the same program, with another part. It dies with the
// process that has started it.
type Process struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *lines
	done chan struct{} // closed when it has ended
}

// Start starts a process with a part and its arguments. The caller ends it by Kill.
func (x *Run) Start(part string, args ...string) (*Process, error) {
	if x.Store.Place == "" {
		return nil, errors.New("this example has several processes, which cannot share locks in the memory of one")
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var flags []string
	flag.Visit(func(f *flag.Flag) { flags = append(flags, "-"+f.Name+"="+f.Value.String()) })
	flags = append(flags, "-store="+x.url, "-dir="+x.dir, part)
	p := &Process{cmd: exec.Command(program, append(flags, args...)...), done: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, w := io.Pipe()
	p.cmd.Stdout, p.out = w, read(out)
	started := make(chan error, 1)
	servers.Tie(p.cmd, func() {
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the example looks at what it has printed
			_ = w.Close()
			close(p.done)
		}
	})
	return p, <-started
}

// Say sends a line to the process, which waits for it in Await.
func (p *Process) Say(line string) error { _, err := fmt.Fprintln(p.in, line); return err }

// Line returns the next line that the process prints.
func (p *Process) Line(ctx context.Context) (string, error) { return p.out.next(ctx) }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends the process as a power cut would, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Freeze stops all threads of a process until Continue. If that keeps this process from the store, it tries
// again: whoever is stopped in the middle of a write to an SQLite file locks others out.
func (x *Run) Freeze(ctx context.Context, p *Process) error {
	for tries := 1; ; tries++ {
		if err := p.cmd.Process.Signal(sigStop); err != nil {
			return err
		}
		for stopped, known := false, true; known && !stopped; {
			time.Sleep(time.Millisecond) // no event tells
			stopped, known = servers.Frozen(p.cmd.Process.Pid)
		}
		err := x.reach(ctx)
		if err == nil || !errors.Is(err, holdfast.ErrUnavailable) || tries == 5 {
			return err
		}
		if err := p.Continue(); err != nil {
			return err
		}
		if err := x.reach(ctx); err != nil { // the write has ended when this returns
			return err
		}
	}
}

// reach returns nil if this process can write to the store.
func (x *Run) reach(ctx context.Context) error {
	c, err := holdfast.New(ctx, x.Store, nil)
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

// Continue ends Freeze.
func (p *Process) Continue() error { return p.cmd.Process.Signal(sigCont) }

// Await waits until the process that has started this one says something.
func (x *Run) Await(ctx context.Context) (string, error) { return x.in.next(ctx) }

// Crash ends this process as a power cut would: nothing is released, nothing is cleaned up.
func Crash() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

// lines are the lines of a stream.
type lines struct{ all chan string }

func read(r io.Reader) *lines {
	l := &lines{make(chan string, 100)}
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			l.all <- s.Text()
		}
		close(l.all)
	}()
	return l
}

func (l *lines) next(ctx context.Context) (string, error) {
	select {
	case line, ok := <-l.all:
		if !ok {
			return "", errors.New("the other process has ended")
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
