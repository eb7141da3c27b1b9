// Package interop lets programs with Apache Curator and programs with holdfast contend for the
// same locks: Curator is the only judge of Curator's format. See README.md.
package interop

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

const (
	// long is the session of those who are to live: longer than any pause of a busy machine.
	long = time.Minute
	// short is the session of those who are to die.
	short = 6 * time.Second
	// patience is how long a test waits for what must come.
	patience = 2 * time.Minute
	// root is where all locks of these tests lie; holdfast's names are what follows.
	root = "/locks"
)

// TestMain runs the tests, or one worker: the test binary is its own worker program.
func TestMain(m *testing.M) {
	if library := os.Getenv(workerEnv); library != "" {
		serve(library)
		return
	}
	goleak.VerifyTestMain(whole{m})
}

// whole is all tests, and the end of the server and the processes that they share.
type whole struct{ *testing.M }

func (w whole) Run() int { return testenv.RunShared(w.M) }

// world is a test's server, seen with the eyes of a client that belongs to neither side.
type world struct {
	t      *testing.T
	number int64 // each has another
	server *testenv.ZooKeeperServer
	eyes   *zk.Conn
}

var (
	worlds atomic.Int64
	// one serves all tests that leave it as it is, and use paths of their own.
	one = testenv.Shared(server)
)

func server(t testing.TB) *testenv.ZooKeeperServer {
	t.Helper()
	return testenv.ZooKeeper(t, "maxSessionTimeout=200000")
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, one(t))
}

func worldOf(t *testing.T, server *testenv.ZooKeeperServer) *world {
	t.Helper()
	w := &world{t: t, number: worlds.Add(1), server: server}
	w.open()
	return w
}

// open opens the eyes.
func (w *world) open() {
	w.t.Helper()
	eyes, _, err := zk.Connect([]string{w.server.Addr}, long, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		w.t.Fatal(err)
	}
	w.eyes = eyes
	w.t.Cleanup(eyes.Close)
}

var sequence = regexp.MustCompile(`\d{10}$`)

// nodes are the children of path in the order of their sequence numbers; none if there is
// no path.
func (w *world) nodes(path string) []string {
	w.t.Helper()
	names, _, err := w.eyes.Children(path)
	if err != nil && err != zk.ErrNoNode {
		w.t.Fatalf("list %s: %v", path, err)
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(sequence.FindString(a), sequence.FindString(b))
	})
	return names
}

// until waits until path has n nodes, and returns them.
func (w *world) until(path string, n int) []string {
	w.t.Helper()
	var names []string
	ok := eventually(func() bool { names = w.nodes(path); return len(names) == n })
	if !ok {
		w.t.Fatalf("%s has %d nodes; expected are %d: %q", path, len(names), n, names[:min(len(names), 20)])
	}
	return names
}

// connected waits until n sessions, those of the eyes included, have found the server again.
func (w *world) connected(n int) {
	w.t.Helper()
	var seen string
	ok := eventually(func() bool {
		seen, _ = w.server.Word("cons") // a connection that fails shows no sessions
		return strings.Count(seen, "sid=0x") == n
	})
	if !ok {
		w.t.Fatalf("%d sessions are to come back to the server; it has:\n%s", n, seen)
	}
}

// eventually reports whether what becomes true in time.
func eventually(what func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if what() {
			return true
		}
	}
	return false
}

// contenders is the folder with the nodes of those who wait for a lock.
func contenders(kind, path string) string {
	if kind == "semaphore" {
		return path + "/locks"
	}
	return path
}

// queue makes a ask for a lock that it cannot have yet, and returns when it stands in line.
func (w *world) queue(a *actor, kind, path string, more ...any) {
	w.t.Helper()
	folder := contenders(kind, path)
	n := len(w.nodes(folder))
	a.send("lock", append([]any{kind, path}, more...)...)
	w.until(folder, n+1)
}
