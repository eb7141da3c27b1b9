//go:build unix

package keeper

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// runtimeDir sets the folder of the sockets, with a short path.
func runtimeDir(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
}

// patient lengthens limits, for tests that are about something else.
func patient(t *testing.T) {
	runs, asks, serves := runsLimit, askLimit, serveLimit
	t.Cleanup(func() { runsLimit, askLimit, serveLimit = runs, asks, serves })
	runsLimit, askLimit, serveLimit = time.Minute, time.Minute, time.Minute
}

// A socket is found by the name of its lock once it listens. Close waits for the answers under way,
// and leaves no file behind.
func TestSocket(t *testing.T) {
	runtimeDir(t)
	patient(t)
	const name = "a name/with \n anything"
	s, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := Find(name); err != nil || len(list) != 0 {
		t.Errorf("before Publish: %s, %v", list, err)
	}
	if err := s.Publish(); err != nil {
		t.Fatal(err)
	}
	list, err := Find(name)
	if err != nil || len(list) != 1 || list[0] != s.Path || !Of(s.Path, name) || Of(s.Path, "b") {
		t.Errorf("%s, %v; want %s", list, err, s.Path)
	}
	if list, err := Find("b"); err != nil || len(list) != 0 {
		t.Errorf("of another lock: %s, %v", list, err)
	}
	var served atomic.Int32
	begun, goOn, ended := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(func(op Op) *Answer {
			begun <- struct{}{}
			<-goOn
			served.Add(1)
			return &Answer{State: Held, Name: name, Why: string(op)}
		})
	}()
	var asking sync.WaitGroup
	const asks = connections / 2
	for range asks {
		asking.Go(func() {
			if a, err := Ask(s.Path, Check); err != nil || a.Name != name || a.Why != "check" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	for range asks {
		<-begun
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-ended
	if n := served.Load(); n != 0 {
		t.Errorf("%d answers", n)
	}
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	asking.Wait()
	if left, err := os.ReadDir(filepath.Dir(s.Path)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := Ask(s.Path, Check); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// A keeper that has closed a connection without taking the request has not ended. If it takes none at all,
// nobody can ask it.
func TestClosedBeforeTheRequest(t *testing.T) {
	runtimeDir(t)
	s, err := Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(); err != nil {
		t.Fatal(err)
	}
	closes := func(n int) { // the next n connections
		for range n {
			if c, err := s.listener.Accept(); err != nil {
				t.Error(err)
			} else {
				c.Close()
			}
		}
	}
	var served atomic.Int32
	go func() {
		closes(3)
		s.Serve(func(Op) *Answer { served.Add(1); return &Answer{State: Held} })
	}()
	if _, err := Ask(s.Path, Release); !errors.Is(err, ErrGone) {
		t.Errorf("closed twice: %v", err)
	}
	if a, err := Ask(s.Path, Release); err != nil || a.State != Held {
		t.Errorf("closed once: %+v, %v", a, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := served.Load(); n != 1 {
		t.Errorf("%d requests were served", n)
	}
}

// Nonsense gets no answer, and ends nothing.
func TestNonsense(t *testing.T) {
	runtimeDir(t)
	patient(t)
	s, err := Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(); err != nil {
		t.Fatal(err)
	}
	go s.Serve(func(Op) *Answer { return &Answer{State: Held} })
	for _, text := range []string{"", "\n", "nonsense\n", "check and more\n", strings.Repeat("x", 100_000)} {
		c, err := net.Dial("unix", s.Path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(text))
		_ = c.(*net.UnixConn).CloseWrite()
		if n, err := c.Read(make([]byte, 10)); n > 0 || err == nil {
			t.Errorf("%.20q: %d bytes, %v", text, n, err)
		}
		c.Close()
	}
	if a, err := Ask(s.Path, Release); err != nil || a.State != Held {
		t.Errorf("%+v, %v", a, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The socket of a keeper that was killed refuses connections, and Tidy removes only such sockets.
func TestTidy(t *testing.T) {
	runtimeDir(t)
	dead, err := Listen("a")
	if err == nil {
		err = dead.Publish()
	}
	if err == nil {
		err = dead.listener.Close() // as if killed: the file stays
	}
	live, lerr := Listen("a")
	if err := errors.Join(err, lerr, live.Publish()); err != nil {
		t.Fatal(err)
	}
	go live.Serve(func(Op) *Answer { return nil })
	if _, err := Ask(dead.Path, Check); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	Tidy(dead.Path)
	Tidy(live.Path)
	if list, err := Find("a"); err != nil || len(list) != 1 || list[0] != live.Path {
		t.Errorf("%s, %v", list, err)
	}
	if err := live.Close(); err != nil {
		t.Error(err)
	}
}

// A keeper that is stopped, and one that waits for the store, are told apart by what they do at once. A
// stopped keeper that goes on does not serve a request that has been given up.
func TestSilence(t *testing.T) {
	runtimeDir(t)
	stopped, err := Listen("a")
	busy, berr := Listen("b")
	if err := errors.Join(err, berr, stopped.Publish(), busy.Publish()); err != nil {
		t.Fatal(err)
	}
	goOn := make(chan struct{})
	go busy.Serve(func(Op) *Answer { <-goOn; return nil })
	var asking sync.WaitGroup
	for s, runs := range map[*Socket]bool{stopped: false, busy: true} {
		asking.Go(func() {
			_, err := Ask(s.Path, Check)
			var silence *Silence
			if !errors.Is(err, ErrSilent) || !errors.As(err, &silence) || silence.Runs != runs ||
				runtime.GOOS == "linux" && silence.PID != os.Getpid() {
				t.Errorf("%+v: %v; want Runs %t", silence, err, runs)
			}
		})
	}
	asking.Wait()
	close(goOn)
	var served atomic.Int32
	go stopped.Serve(func(Op) *Answer { served.Add(1); return &Answer{State: Held} })
	if _, err := Ask(stopped.Path, Check); err != nil { // after the first one
		t.Error(err)
	}
	if err := errors.Join(stopped.Close(), busy.Close()); err != nil {
		t.Error(err)
	}
	if n := served.Load(); n != 1 {
		t.Errorf("%d requests were served, one of them for nobody", n)
	}
}

// A path that no system allows for a socket is refused before a file is made.
func TestLongPath(t *testing.T) {
	runtimeDir(t)
	long := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), strings.Repeat("x", 80))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", long)
	if _, err := Listen("a"); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR names another folder") {
		t.Error(err)
	}
}

// The ancestors of this process are this process, its parent and so on, and no others.
func TestAncestor(t *testing.T) {
	if !Ancestor(os.Getpid()) || !Ancestor(os.Getppid()) || Ancestor(0) || Ancestor(-1) || Ancestor(1<<30) {
		t.Error("Ancestor is wrong")
	}
}
