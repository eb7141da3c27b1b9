package interop

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

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// side is one of the libraries that meet.
type side struct {
	name    string
	command func(testing.TB) *exec.Cmd
}

var (
	curator = side{"Curator", javaCommand}
	ours    = inOurPlace()
	stock   = side{"zk.Lock", workerCommand("zk")}
)

// control puts Curator in holdfast's place: what fails then is the fault of a test.
var control = os.Getenv("INTEROP_CONTROL") != ""

func inOurPlace() side {
	if control {
		return side{"Curator in our place", javaCommand}
	}
	return side{"holdfast", workerCommand("holdfast")}
}

func workerCommand(library string) func(testing.TB) *exec.Cmd {
	return func(testing.TB) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workerEnv+"="+library)
		return cmd
	}
}

// process is a program of one side. It dies with the tests: its standard input ends then.
type process struct {
	side   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	done   chan struct{} // it has ended

	mu  sync.Mutex
	all map[string]*actor // by what the process calls them
}

// peer is a process as one test uses it.
type peer struct {
	*process
	t      *testing.T
	w      *world
	actors map[string]*actor // the test's own
}

// actor is a session of a peer, which holds or waits for one lock at a time. What it is told
// is done in order; each command is answered once.
type actor struct {
	p        *peer
	name, id string // what the test and the process call it
	replies  chan string
}

// shared are processes that tests share: of each side as many as one test uses.
var shared = map[string][]func(testing.TB) *process{
	curator.name: {sharedProcess(curator), sharedProcess(curator)},
	ours.name:    {sharedProcess(ours), sharedProcess(ours)},
	stock.name:   {sharedProcess(stock)},
}

func sharedProcess(s side) func(testing.TB) *process {
	return testenv.Shared(func(t testing.TB) *process { return start(t, s) })
}

// peer is the process of a side that all tests share.
func (w *world) peer(s side) *peer { return w.another(s, 0) }

// another is one more of them.
func (w *world) another(s side, i int) *peer {
	w.t.Helper()
	return w.use(shared[s.name][i](w.t))
}

// own starts a process for this test alone, which may end or freeze it.
func (w *world) own(s side) *peer {
	w.t.Helper()
	return w.use(start(w.t, s))
}

func (w *world) use(p *process) *peer {
	u := &peer{process: p, t: w.t, w: w, actors: map[string]*actor{}}
	w.t.Cleanup(u.leave)
	return u
}

// leave ends the sessions of the test, each when it has done what it was told.
func (p *peer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.actors {
		_, _ = io.WriteString(p.in, a.id+" close\n") // the process may have ended
		delete(p.all, a.id)
	}
}

func start(t testing.TB, s side) *process {
	t.Helper()
	cmd := s.command(t)
	p := &process{side: s.name, cmd: cmd, done: make(chan struct{}), all: map[string]*actor{}}
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
		_ = cmd.Wait() // how it ended is of no interest
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process at once, as kill -9 does. Its sessions are left to run out.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// actor opens a session, below a chroot if there is one.
func (p *peer) actor(name string, session time.Duration, chroot ...string) *actor {
	p.t.Helper()
	a := &actor{p: p, name: name, id: fmt.Sprint(p.w.number, ".", name), replies: make(chan string, 8)}
	p.mu.Lock()
	p.actors[name], p.all[a.id] = a, a
	p.mu.Unlock()
	a.do("connect", p.w.server.Addr+strings.Join(chroot, ""), session.Milliseconds())
	return a
}

func (a *actor) String() string { return a.p.side + " " + a.name }

// send gives a command; the answer may take its time.
func (a *actor) send(command string, args ...any) {
	a.p.t.Helper()
	line := a.id + " " + command
	for _, arg := range args {
		line += fmt.Sprint(" ", arg)
	}
	if _, err := io.WriteString(a.p.in, line+"\n"); err != nil {
		a.p.t.Fatalf("%s: %s: %v\n%s", a, line, err, a.p.ended())
	}
}

// reply waits for the next answer.
func (a *actor) reply() string {
	a.p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case r := <-a.replies:
		return r
	case <-a.p.done:
		select {
		case r := <-a.replies:
			return r
		default:
		}
		a.p.t.Fatalf("%s: the process has ended\n%s", a, a.p.ended())
	case <-limit.C:
		a.p.t.Fatalf("%s does not answer", a)
	}
	return ""
}

// ended is what a process that has ended said on standard error.
func (p *process) ended() string {
	select {
	case <-p.done:
		return p.errors.String()
	case <-time.After(time.Second):
		return "(still running)"
	}
}

// ok waits for an answer, which must be "ok", and returns the words that follow.
func (a *actor) ok(what string) string {
	a.p.t.Helper()
	r := a.reply()
	word, rest, _ := strings.Cut(r, " ")
	if word != "ok" {
		a.p.t.Fatalf("%s: %s: %s", a, what, r)
	}
	return rest
}

// do gives a command that must succeed, and returns the words of the answer.
func (a *actor) do(command string, args ...any) string {
	a.p.t.Helper()
	a.send(command, args...)
	return a.ok(command + " " + fmt.Sprint(args...))
}

// busy tries for a lock that must not be had.
func (a *actor) busy(kind, path string, d time.Duration, more ...any) {
	a.p.t.Helper()
	a.send("try", append([]any{kind, path, d.Milliseconds()}, more...)...)
	if r := a.reply(); r != "busy" {
		a.p.t.Fatalf("%s tried for the %s %s, which another has: %s", a, kind, path, r)
	}
}

// blocked looks for a while whether those who must still wait do.
func blocked(why string, all ...*actor) {
	time.Sleep(150 * time.Millisecond)
	for _, a := range all {
		a.p.t.Helper()
		select {
		case r := <-a.replies:
			a.p.t.Fatalf("%s has to wait: %s; it got: %s", a, why, r)
		default:
		}
	}
}
