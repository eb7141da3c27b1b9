package redisson

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

// control puts Redisson in holdfast's place: what fails then is the fault of a test.
var control = os.Getenv("INTEROP_CONTROL") != ""

// side is one of the libraries.
type side struct {
	name  string
	start func(testing.TB) *process
	// shared are processes that tests share, as many as one test needs.
	shared [2]func(testing.TB) *process
}

func newSide(name string, command func(testing.TB) *exec.Cmd) *side {
	s := &side{name: name, start: func(t testing.TB) *process {
		t.Helper()
		return start(t, name, command(t))
	}}
	for i := range s.shared {
		s.shared[i] = testenv.Shared(s.start)
	}
	return s
}

var sides struct {
	sync.Mutex
	all map[string]*side
}

// sideOf returns the side of a name, which exists once.
func sideOf(name string, command func(testing.TB) *exec.Cmd) *side {
	sides.Lock()
	defer sides.Unlock()
	if sides.all == nil {
		sides.all = map[string]*side{}
	}
	if sides.all[name] == nil {
		sides.all[name] = newSide(name, command)
	}
	return sides.all[name]
}

// java is Redisson's side.
func (w *world) java() *side {
	return sideOf("Redisson "+w.release, func(t testing.TB) *exec.Cmd { return javaCommand(t, w.release) })
}

// ours is holdfast's side.
func (w *world) ours() *side {
	if control {
		return sideOf("Redisson "+w.release+" in holdfast's place",
			func(t testing.TB) *exec.Cmd { return javaCommand(t, w.release) })
	}
	return sideOf("holdfast", workerCommand)
}

// direction is a holder's side, and the side of who comes after it.
type direction struct {
	name         string
	first, other *side
}

// directions are both sides, in both roles.
func (w *world) directions() []direction {
	return []direction{{"from Redisson", w.java(), w.ours()}, {"to Redisson", w.ours(), w.java()}}
}

// named returns a direction's name for actors and locks.
func named(d direction) string { return strings.ReplaceAll(d.name, " ", "-") }

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

// actor is a thread of a process, or what corresponds to it. It carries out commands in order, and
// answers each once.
type actor struct {
	t        *testing.T
	p        *process
	name, id string // its names in the test and at the process
	replies  chan string
}

func start(t testing.TB, side string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{side: side, cmd: cmd, done: make(chan struct{}), all: map[string]*actor{}}
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

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// actor adds an actor to a side's process that all tests share.
func (w *world) actor(s *side, name string, ttl time.Duration) *actor {
	w.t.Helper()
	return w.actorAt(s.shared[0](w.t), name, ttl)
}

// actorAt adds an actor. ttl is the timeout of its watchdog. Its last command ends the actor, and
// leaves its locks as they are.
func (w *world) actorAt(p *process, name string, ttl time.Duration) *actor {
	w.t.Helper()
	a := &actor{t: w.t, p: p, name: name, id: fmt.Sprint(w.number, ".", name), replies: make(chan string, 8)}
	p.mu.Lock()
	if p.all[a.id] != nil {
		p.mu.Unlock()
		w.t.Fatalf("two actors are named %s", a)
	}
	p.all[a.id] = a
	p.mu.Unlock()
	w.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, _ = io.WriteString(p.in, a.id+" close\n") // the process may have ended
		delete(p.all, a.id)
	})
	a.do("connect", w.url(), ttl.Milliseconds(), w.place.sharded)
	return a
}

func (a *actor) String() string { return a.p.side + " " + a.name }

// send sends a command, and does not wait for the answer.
func (a *actor) send(command string, args ...any) {
	a.t.Helper()
	line := a.id + " " + command
	for _, arg := range args {
		line += fmt.Sprint(" ", arg)
	}
	if _, err := io.WriteString(a.p.in, line+"\n"); err != nil {
		a.t.Fatalf("%s: %s: %v\n%s", a, line, err, a.p.ended())
	}
}

// reply waits for the next answer.
func (a *actor) reply() string {
	a.t.Helper()
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
		a.t.Fatalf("%s: the process has ended\n%s", a, a.p.ended())
	case <-limit.C:
		a.t.Fatalf("%s does not answer", a)
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
	a.t.Helper()
	r := a.reply()
	word, rest, _ := strings.Cut(r, " ")
	if word != "ok" {
		a.t.Fatalf("%s: %s: %s", a, what, r)
	}
	return rest
}

// do sends a command that must succeed, and returns the words of the answer.
func (a *actor) do(command string, args ...any) string {
	a.t.Helper()
	a.send(command, args...)
	return a.ok(fmt.Sprint(command, " ", args))
}

// must sends a command that must be answered by this word: busy, or lost.
func (a *actor) must(word, command string, args ...any) {
	a.t.Helper()
	a.send(command, args...)
	r := a.reply()
	if got, _, _ := strings.Cut(r, " "); got != word {
		a.t.Fatalf("%s: %s %v: %s; want %s", a, command, args, r, word)
	}
}

// mustBeBusy tries to take a lock that is taken, and does not wait.
func (a *actor) mustBeBusy(kind, name string) {
	a.t.Helper()
	a.must("busy", "try", kind, name, 0)
}

// mustWait checks for a while that these actors still wait.
func mustWait(why string, all ...*actor) {
	time.Sleep(150 * time.Millisecond)
	for _, a := range all {
		a.t.Helper()
		select {
		case r := <-a.replies:
			a.t.Fatalf("%s must wait: %s; it got: %s", a, why, r)
		default:
		}
	}
}
