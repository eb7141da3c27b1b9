package redisson

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/interop/internal/remote"
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
		return remote.Start(t, name, command(t))
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
	return sideOf("Redisson "+w.release, w.javaCommand)
}

func (w *world) javaCommand(t testing.TB) *exec.Cmd {
	return program(w.release).Command(t, "actor.Main")
}

// ours is holdfast's side.
func (w *world) ours() *side {
	if control {
		return sideOf("Redisson "+w.release+" in holdfast's place", w.javaCommand)
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

type (
	process = remote.Process
	actor   = remote.Actor
)

// actor adds an actor to a side's process that all tests share.
func (w *world) actor(s *side, name string, ttl time.Duration) *actor {
	w.t.Helper()
	return w.actorAt(s.shared[0](w.t), name, ttl)
}

// actorAt adds an actor. ttl is the timeout of its watchdog. Its last command ends the actor, and
// leaves its locks as they are.
func (w *world) actorAt(p *process, name string, ttl time.Duration) *actor {
	w.t.Helper()
	a := p.Actor(w.t, name, fmt.Sprint(w.number, ".", name))
	a.Do("connect", w.url(), ttl.Milliseconds(), w.place.sharded)
	return a
}

// mustBeBusy tries to take a lock that is taken, and does not wait.
func mustBeBusy(a *actor, kind, name string) { a.Must("busy", "try", kind, name, 0) }

// program is the Java program with a release of Redisson.
func program(release string) remote.Java {
	return remote.Java{Folder: ".", Target: "target/" + release, Jar: "worker.jar", Maven: "-Dredisson.version=" + release}
}
