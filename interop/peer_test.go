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

// side is one of the libraries.
type side struct {
	name    string
	command func(testing.TB) *exec.Cmd
}

var (
	curator = side{"Curator", javaCommand}
	ours    = holdfastSide()
	stock   = side{"zk.Lock", workerCommand("zk")}
)

// control puts Curator in holdfast's place: what fails then is the fault of a test.
var control = os.Getenv("INTEROP_CONTROL") != ""

func holdfastSide() side {
	if control {
		return side{"Curator in holdfast's place", javaCommand}
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

// process is a program of one side. It ends with the tests, because its standard input ends then.
type process struct {
	side   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	done   chan struct{} // closed when it has ended

	mu  sync.Mutex
	all map[string]*actor // by their names at the process
}

// peer is one test's use of a process.
type peer struct {
	*process
	t      *testing.T
	w      *world
	actors map[string]*actor // the test's own
}

// actor is a session of a peer, which holds or waits for one lock at a time. It carries out
// commands in order and answers each once.
type actor struct {
	p        *peer
	name, id string // its names in the test and at the process
	replies  chan string
}

// shared are processes that tests share: for each side, as many as one test needs.
var shared = map[string][]func(testing.TB) *process{
	curator.name: {sharedProcess(curator), sharedProcess(curator)},
	ours.name:    {sharedProcess(ours), sharedProcess(ours)},
	stock.name:   {sharedProcess(stock)},
}

func sharedProcess(s side) func(testing.TB) *process {
	return testenv.Shared(func(t testing.TB) *process { return start(t, s) })
}

// peer returns the process of a side that all tests share.
func (w *world) peer(s side) *peer { return w.another(s, 0) }

// another returns one more shared process.
func (w *world) another(s side, i int) *peer {
	w.t.Helper()
	return w.use(shared[s.name][i](w.t))
}

// own starts a process for this test alone, which the test may end or freeze.
func (w *world) own(s side) *peer {
	w.t.Helper()
	return w.use(start(w.t, s))
}

func (w *world) use(p *process) *peer {
	u := &peer{process: p, t: w.t, w: w, actors: map[string]*actor{}}
	w.t.Cleanup(u.closeActors)
	return u
}

// closeActors ends the sessions of the test, each after its last command.
func (p *peer) closeActors() {
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
		_ = cmd.Wait() // its exit status does not matter
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process at once, as kill -9 does. Its sessions expire.
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

// send sends a command, and does not wait for the answer.
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
	limit := time.NewTimer(limit)
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

// ended returns the standard error of a process that has ended.
func (p *process) ended() string {
	select {
	case <-p.done:
		return p.errors.String()
	case <-time.After(time.Second):
		return "(still running)"
	}
}

// ok waits for an answer, which must be "ok", and returns the words after it.
func (a *actor) ok(what string) string {
	a.p.t.Helper()
	r := a.reply()
	word, rest, _ := strings.Cut(r, " ")
	if word != "ok" {
		a.p.t.Fatalf("%s: %s: %s", a, what, r)
	}
	return rest
}

// do sends a command that must succeed, and returns the words of the answer.
func (a *actor) do(command string, args ...any) string {
	a.p.t.Helper()
	a.send(command, args...)
	return a.ok(command + " " + fmt.Sprint(args...))
}

// mustBeBusy tries to take a lock that is taken.
func (a *actor) mustBeBusy(kind, path string, d time.Duration, more ...any) {
	a.p.t.Helper()
	a.send("try", append([]any{kind, path, d.Milliseconds()}, more...)...)
	if r := a.reply(); r != "busy" {
		a.p.t.Fatalf("%s tried the %s %s, which another actor has: %s", a, kind, path, r)
	}
}

// mustWait checks for a while that these actors still wait.
func mustWait(why string, all ...*actor) {
	time.Sleep(150 * time.Millisecond)
	for _, a := range all {
		a.p.t.Helper()
		select {
		case r := <-a.replies:
			a.p.t.Fatalf("%s must wait: %s; it got: %s", a, why, r)
		default:
		}
	}
}
