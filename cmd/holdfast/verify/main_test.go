package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// workerEnv makes the test's program a worker.
const workerEnv = "HOLDFAST_VERIFY_TEST_WORKER"

// TestMain runs the tests, or one worker: the test's program is its own worker, and that of other locks.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if which := os.Getenv(externalEnv); which != "" {
		if err := runExternal(which); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a worker process.
type child struct {
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr words
	lines  chan Progress // closed at the end of its output
	exited chan error
}

// words are a worker's standard error.
type words struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // closed and replaced at each write
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.written)
	w.written = make(chan struct{})
	return w.text.Write(b)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// until waits for a text.
func (w *words) until(t testing.TB, word string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		w.mu.Lock()
		text, more := w.text.String(), w.written
		w.mu.Unlock()
		if strings.Contains(text, word) {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("never written: %q, but %q", word, text)
		}
	}
}

// start starts a worker with a job.
func start(t testing.TB, j Job) *child {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, string(text)+"\n")
}

// startWith starts a worker with a first line of input.
func startWith(t testing.TB, first string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan Progress, 1000), exited: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), workerEnv+"=1")
	c.stderr.written = make(chan struct{})
	c.cmd.Stderr = &c.stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			var p Progress
			if err := json.Unmarshal(s.Bytes(), &p); err != nil {
				t.Errorf("a line of output: %q: %v", s.Text(), err)
			}
			c.lines <- p
		}
		close(c.lines)
		c.exited <- c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.in.Close()
		_ = c.cmd.Process.Kill()
		for range c.lines { // its goroutine ends
		}
	})
	// A worker that refuses its input may end before it has read all of it. Its end tells why.
	_, _ = io.WriteString(c.in, first)
	return c
}

func (c *child) say(text string) {
	if _, err := io.WriteString(c.in, text); err != nil {
		c.t.Errorf("the worker does not read its input: %v", err)
	}
}

// next returns the next line of output, or false at its end.
func (c *child) next() (Progress, bool) {
	c.t.Helper()
	select {
	case p, ok := <-c.lines:
		return p, ok
	case <-time.After(30 * time.Second):
		c.t.Fatal("the worker writes nothing")
		return Progress{}, false
	}
}

// ready waits until the clients are connected.
func (c *child) ready() {
	c.t.Helper()
	if p, ok := c.next(); !ok || p != (Progress{Ready: true}) {
		c.t.Fatalf("the first line: %+v, %v; %s", p, ok, c.ended())
	}
}

// until reads lines until one satisfies ok.
func (c *child) until(what string, ok func(Progress) bool) Progress {
	c.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		p, more := c.next()
		if !more {
			c.t.Fatalf("the worker ended before %s: %s", what, c.ended())
		}
		if ok(p) {
			return p
		}
	}
	c.t.Fatalf("never: %s", what)
	return Progress{}
}

// ended waits for the end and returns the worker's standard error; empty if it ended well.
func (c *child) ended() string {
	c.t.Helper()
	for range c.lines {
	}
	select {
	case err := <-c.exited:
		c.exited <- err
		if err != nil {
			return fmt.Sprintf("%v: %s", err, c.stderr.String())
		}
		return ""
	case <-time.After(60 * time.Second):
		c.t.Fatal("the worker does not end")
		return ""
	}
}

// finish has the worker end in order.
func (c *child) finish() {
	c.t.Helper()
	c.say(Finish + "\n")
	if text := c.ended(); text != "" {
		c.t.Error(text)
	}
}

// sceneKey is the key of the resource of a scene.
const sceneKey = "4key"

// scene is what workers need: a folder for histories, and the resource.
type scene struct {
	dir, addr string
	resource  *Resource
	rec       *history.Recorder
	end       func()
}

func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{dir: t.TempDir()}
	var err error
	if s.rec, err = history.Create(filepath.Join(s.dir, "resource.jsonl")); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr, s.resource = ln.Addr().String(), NewResource(s.rec, sceneKey)
	served := make(chan error, 1)
	go func() { served <- s.resource.Serve(ln) }()
	s.end = sync.OnceFunc(func() {
		s.resource.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		for _, r := range s.resource.Final() {
			s.rec.Record(history.Event{Kind: history.Final, Name: r.Name, Value: r.Value, Token: r.Token})
		}
		if err := s.rec.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.end)
	return s
}

func (s *scene) job(url string) Job {
	return Job{URL: url, Resource: s.addr, Key: sceneKey, Process: "p0.1", Dir: s.dir, Prefix: "verify/test/", Names: 2,
		Clients: 2, Loops: 12,
		TTL: time.Second, Seed: 1, Mix: MixAll, Pause: 10 * time.Millisecond}
}

// has waits until the workers have recorded events of these kinds.
func (s *scene) has(t testing.TB, kinds ...history.Kind) {
	t.Helper()
	missing := func(k history.Kind) bool {
		files, _ := filepath.Glob(filepath.Join(s.dir, "p*.jsonl"))
		return !slices.ContainsFunc(files, func(file string) bool {
			text, _ := os.ReadFile(file)
			return strings.Contains(string(text), `"kind":"`+k.String()+`"`)
		})
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if kinds = slices.DeleteFunc(kinds, func(k history.Kind) bool { return !missing(k) }); len(kinds) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there is no event of the kinds %v", kinds)
		}
	}
}

// events returns all recorded events, once all workers have ended.
func (s *scene) events(t testing.TB) []history.Event {
	t.Helper()
	s.end()
	files, err := filepath.Glob(filepath.Join(s.dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	events, err := history.ReadFiles(files...)
	if err != nil {
		t.Fatal(err)
	}
	return events
}
