//go:build unix

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	if behaviour, is := os.LookupEnv(jobVariable); is {
		job(behaviour)
		return
	}
	dir, err := os.MkdirTemp("", "holdfast-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Under nohup this program ignores SIGHUP, and in the background of a shell SIGINT and SIGQUIT.
	// Its children would inherit that, but not signals that it catches.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	binary = filepath.Join(dir, "holdfast")
	if out, err := build().CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
		os.Exit(1)
	}
	code := testenv.RunShared(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the program as for a release. The long tests use the race detector. It needs cgo,
// and makes each of the thousands of processes start several times slower.
func build() *exec.Cmd {
	if raceDetector && testenv.Deep() {
		return exec.Command("go", "build", "-race", "-o", binary, ".")
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// limit bounds everything that a test waits for.
const limit = time.Minute

// bench is the environment of one test: a store and a folder.
type bench struct {
	*testing.T
	dir string
	env []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	return newSerialBench(t)
}

// newSerialBench is newBench for a test that does not run in parallel.
func newSerialBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	return &bench{t, dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"XDG_STATE_HOME=" + filepath.Join(dir, "state"), "H=" + binary, "D=" + dir}}
}

// onStores runs f on the embedded store, on Redis and on the kind of server that more names; at
// full size on all kinds.
func onStores(t *testing.T, more string, f func(*bench)) {
	t.Run("sqlite", func(t *testing.T) { f(newBench(t)) })
	t.Run("redis", func(t *testing.T) {
		b := newBench(t)
		// The limits of the client are short, and a busy machine may take longer.
		b.env = append(b.env, "HOLDFAST_URL="+testenv.Redis(t).URL()+"?dial-timeout=1m&read-timeout=1m")
		f(b)
	})
	if testenv.Deep() || more == "zookeeper" {
		t.Run("zookeeper", func(t *testing.T) {
			b := newBench(t)
			b.env = append(b.env, "HOLDFAST_URL="+zooKeeperURL(t))
			f(b)
		})
	}
	if testenv.Deep() || more == "mysql" {
		t.Run("mysql", func(t *testing.T) {
			b := newBench(t)
			b.initialise(mySQLURL(mariaDB(t).Addr, "root", database(t, mariaDB(t))))
			f(b)
		})
	}
	if testenv.Deep() || more == "postgres" {
		t.Run("postgres", func(t *testing.T) {
			b := newBench(t)
			b.initialise(postgresURL(postgres(t).Addr, "postgres", database(t, postgres(t))))
			f(b)
		})
	}
}

// The servers that tests share. These tests do not change the servers.
var (
	mariaDB  = testenv.Shared(func(t testing.TB) *testenv.MariaDBServer { return testenv.MariaDB(t) })
	postgres = testenv.Shared(func(t testing.TB) *testenv.PostgresServer {
		return testenv.Postgres(t, "max_connections=400") // cancelled calls keep theirs for a while
	})
	zooKeeper = testenv.Shared(func(t testing.TB) *testenv.ZooKeeperServer { return testenv.ZooKeeper(t, longSessions) })
)

// serial numbers the databases and folders of tests at shared servers.
var serial atomic.Int64

// database creates a database for one test.
func database(t *testing.T, s interface{ Exec(...string) }) string {
	t.Helper()
	name := fmt.Sprint("own", serial.Add(1))
	s.Exec("CREATE DATABASE " + name)
	return name
}

// zooKeeperURL returns the URL of a folder for one test.
func zooKeeperURL(t *testing.T) string {
	t.Helper()
	return zooKeeper(t).URL() + fmt.Sprint("/own", serial.Add(1))
}

// longSessions allows sessions as long as a server with default settings allows.
const longSessions = "maxSessionTimeout=40000"

// process is a running holdfast.
type process struct {
	*exec.Cmd
	t        *bench
	out, err output
	done     chan struct{}
}

// output collects the output of a process. grown gets a value at the first write.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	grown chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start starts holdfast. Scripts find the program as $H, and the folder of the test as $D.
func (b *bench) start(args ...string) *process {
	b.Helper()
	p := b.prepare(args...)
	p.begin()
	return p
}

func (b *bench) prepare(args ...string) *process {
	return b.process(exec.Command(binary, args...))
}

// process prepares cmd to run in the environment of the test.
func (b *bench) process(cmd *exec.Cmd) *process {
	p := &process{Cmd: cmd, t: b, done: make(chan struct{})}
	p.out.grown, p.err.grown = make(chan struct{}, 1), make(chan struct{}, 1)
	p.Env, p.Dir = b.env, b.dir
	p.Stdout, p.Stderr = &p.out, &p.err
	// Processes that a test leaves behind on purpose must not block Wait.
	p.WaitDelay = limit
	return p
}

func (p *process) begin() {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.done) }()
	p.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		if p.t.Failed() {
			p.t.Logf("%q: %v; stderr: %s", p.Args[1:], p.ProcessState, p.err.String())
		}
	})
}

// code waits for the end and returns the exit code, or minus the number of a signal.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%v does not end; stderr: %s", p.Args[1:], p.err.String())
	}
	ws := p.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// run runs holdfast until it ends.
func (b *bench) run(args ...string) (code int, stdout, stderr string) {
	b.Helper()
	p := b.start(args...)
	code = p.code()
	return code, p.out.String(), p.err.String()
}

// slow is a message that a store on a busy machine may cause in any test.
var slow = regexp.MustCompile(`(?m)^holdfast: the store.* has not answered for 3s; giving up after .*\n`)

// want runs holdfast and checks the exit code. What it returns has no message that slow matches.
func (b *bench) want(code int, args ...string) (stdout, stderr string) {
	b.Helper()
	got, stdout, stderr := b.run(args...)
	if got != code {
		b.Fatalf("holdfast %q: exit code %d, want %d; stdout %q, stderr %q", args, got, code, stdout, stderr)
	}
	return stdout, slow.ReplaceAllString(stderr, "")
}

// until waits for a condition.
func (b *bench) until(what string, f func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	// Many conditions start a process, so the pause grows.
	for pause := 5 * time.Millisecond; !f(); pause = min(pause*3/2, 100*time.Millisecond) {
		select {
		case <-ctx.Done():
			b.Fatalf("not within %v: %s", limit, what)
		case <-time.After(pause):
		}
	}
}

// file waits until a file in the folder of the test has a whole line, and returns its content.
func (b *bench) file(name string) string {
	b.Helper()
	var text []byte
	b.until("file "+name, func() bool {
		text, _ = os.ReadFile(filepath.Join(b.dir, name))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

// pid is like file, for a number.
func (b *bench) pid(name string) int {
	b.Helper()
	n, err := strconv.Atoi(b.file(name))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		_, perr := os.Stat("/proc/self/stat")
		return perr != nil
	}
	return !strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
}

// token returns the token of the only holder of name.
func (b *bench) token(name string) string {
	b.Helper()
	return strings.TrimSpace(b.field(name, "token "))
}

// field returns the rest of the line of info that begins with key.
func (b *bench) field(name, key string) string {
	b.Helper()
	out, _ := b.want(0, "info", name)
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(rest)
		}
	}
	b.Fatalf("info has no %q: %s", key, out)
	return ""
}
