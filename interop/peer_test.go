package interop

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/interop/internal/remote"
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

// javaCommand is the Java program.
func javaCommand(t testing.TB) *exec.Cmd {
	return remote.Java{Folder: "curator", Target: "target", Jar: "interop.jar"}.Command(t, "interop.Main")
}

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

type (
	process = remote.Process
	actor   = remote.Actor
)

// peer is one test's use of a process. Each of its actors is a session, which holds or waits for one
// lock at a time.
type peer struct {
	*process
	w      *world
	actors map[string]*actor // the test's own
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
	return &peer{process: p, w: w, actors: map[string]*actor{}}
}

func start(t testing.TB, s side) *process {
	t.Helper()
	return remote.Start(t, s.name, s.command(t))
}

// actor opens a session, below a chroot if there is one.
func (p *peer) actor(name string, session time.Duration, chroot ...string) *actor {
	p.w.t.Helper()
	a := p.Actor(p.w.t, name, fmt.Sprint(p.w.number, ".", name))
	p.actors[name] = a
	a.Do("connect", p.w.server.Addr+strings.Join(chroot, ""), session.Milliseconds())
	return a
}

// mustBeBusy tries to take a lock that is taken.
func mustBeBusy(a *actor, kind, path string, d time.Duration, more ...any) {
	a.Must("busy", "try", append([]any{kind, path, d.Milliseconds()}, more...)...)
}
