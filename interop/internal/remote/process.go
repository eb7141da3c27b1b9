// Package remote drives programs with a lock library step by step. A program reads commands from its
// standard input, one a line: the name of an actor, a word, and arguments. It answers each with a
// line: the actor, "ok", "busy", "lost" or "error", and words.
package remote

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Limit is how long a test waits for an event that must happen.
const Limit = 2 * time.Minute

// Process is a program of one side. It ends with the tests, because its standard input ends then.
type Process struct {
	Side   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	done   chan struct{} // closed when it has ended

	mu  sync.Mutex
	all map[string]*Actor // by their names at the process
}

// Start starts a program. It is killed at the end of the test.
func Start(t testing.TB, side string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Side: side, cmd: cmd, done: make(chan struct{}), all: map[string]*Actor{}}
	cmd.Stderr = &p.errors
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			id, reply, _ := strings.Cut(lines.Text(), " ")
			p.mu.Lock()
			a := p.all[id]
			p.mu.Unlock()
			if a != nil {
				a.replies <- reply
			}
		}
		_ = cmd.Wait() // its exit status does not matter
		close(p.done)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Kill ends the process at once, as kill -9 does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Signal sends a signal, unless the process has ended: its next command reports that.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Failure returns the standard error of a process that has ended.
func (p *Process) Failure() string {
	select {
	case <-p.done:
		return p.errors.String()
	case <-time.After(time.Second):
		return "(still running)"
	}
}

// Actor is a thread of a process, or what corresponds to it. It carries out commands in order, and
// answers each once.
type Actor struct {
	Process *Process
	Name    string     // in the test
	T       testing.TB // of the test that uses it
	id      string     // at the process
	replies chan string
	closed  bool // "close" was its last command
}

// Actor adds an actor, whose id no other actor of the process has. At the end of the test
// it gets the command "close".
func (p *Process) Actor(t testing.TB, name, id string) *Actor {
	t.Helper()
	a := &Actor{Process: p, Name: name, T: t, id: id, replies: make(chan string, 8)}
	p.mu.Lock()
	if p.all[a.id] != nil {
		p.mu.Unlock()
		t.Fatalf("two actors are named %s", a)
	}
	p.all[a.id] = a
	p.mu.Unlock()
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !a.closed {
			_, _ = io.WriteString(p.in, a.id+" close\n") // the process may have ended
		}
		delete(p.all, a.id)
	})
	return a
}

// String returns the actor's side and name.
func (a *Actor) String() string { return a.Process.Side + " " + a.Name }

// Send sends a command, and does not wait for the answer.
func (a *Actor) Send(command string, args ...any) {
	a.T.Helper()
	a.closed = command == "close"
	line := a.id + " " + command
	for _, arg := range args {
		line += fmt.Sprint(" ", arg)
	}
	if _, err := io.WriteString(a.Process.in, line+"\n"); err != nil {
		a.T.Fatalf("%s: %s: %v\n%s", a, line, err, a.Process.Failure())
	}
}

// Answered reports whether there is an answer that Reply returns at once.
func (a *Actor) Answered() bool { return len(a.replies) > 0 }

// Reply waits for the next answer.
func (a *Actor) Reply() string {
	a.T.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	select {
	case r := <-a.replies:
		return r
	case <-a.Process.done:
		select {
		case r := <-a.replies:
			return r
		default:
		}
		a.T.Fatalf("%s: the process has ended\n%s", a, a.Process.Failure())
	case <-limit.C:
		a.T.Fatalf("%s does not answer", a)
	}
	return ""
}

// OK waits for an answer, which must be "ok", and returns the words after it.
func (a *Actor) OK(what string) string {
	a.T.Helper()
	r := a.Reply()
	word, rest, _ := strings.Cut(r, " ")
	if word != "ok" {
		a.T.Fatalf("%s: %s: %s", a, what, r)
	}
	return rest
}

// Do sends a command that must succeed, and returns the words of the answer.
func (a *Actor) Do(command string, args ...any) string {
	a.T.Helper()
	a.Send(command, args...)
	return a.OK(fmt.Sprint(command, " ", args))
}

// Must sends a command that must be answered by this word: busy, or lost.
func (a *Actor) Must(word, command string, args ...any) {
	a.T.Helper()
	a.Send(command, args...)
	r := a.Reply()
	if got, _, _ := strings.Cut(r, " "); got != word {
		a.T.Fatalf("%s: %s %v: %s; want %s", a, command, args, r, word)
	}
}

// MustWait checks for a while that these actors still wait.
func MustWait(why string, all ...*Actor) {
	time.Sleep(150 * time.Millisecond)
	for _, a := range all {
		a.T.Helper()
		if a.Answered() {
			a.T.Fatalf("%s must wait: %s; it got: %s", a, why, a.Reply())
		}
	}
}
