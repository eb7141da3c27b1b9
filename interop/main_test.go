// Package interop lets programs with Apache Curator and programs with holdfast contend for the same
// locks: Curator is the only judge of Curator's format. See README.md.
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
	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

const (
	// longSession is for sessions that must not expire: longer than any pause of a busy machine.
	longSession = time.Minute
	// shortSession is for sessions that must expire.
	shortSession = 6 * time.Second
	// limit is how long a test waits for an event that must happen.
	limit = remote.Limit
	// root is the path of all locks of these tests; the rest of a path is holdfast's name.
	root = "/locks"
)

// TestMain runs the tests, or one worker: the test binary is its own worker program.
func TestMain(m *testing.M) {
	if library := os.Getenv(workerEnv); library != "" {
		serve(library)
		return
	}
	goleak.VerifyTestMain(testenv.Suite{M: m})
}

// world is a test's server, with a client that belongs to neither side.
type world struct {
	t        *testing.T
	number   int64 // unique
	server   *testenv.ZooKeeperServer
	observer *zk.Conn
}

var (
	worlds atomic.Int64
	// one is a server for all tests that leave it as it was, and use paths of their own.
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
	w.connect()
	return w
}

// connect opens the observer's session.
func (w *world) connect() {
	w.t.Helper()
	observer, _, err := zk.Connect([]string{w.server.Addr}, longSession, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		w.t.Fatal(err)
	}
	w.observer = observer
	w.t.Cleanup(observer.Close)
}

var sequence = regexp.MustCompile(`\d{10}$`)

// nodes returns the children of path in the order of their sequence numbers; none if path does not
// exist.
func (w *world) nodes(path string) []string {
	w.t.Helper()
	names, _, err := w.observer.Children(path)
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
		w.t.Fatalf("%s has %d nodes, want %d: %q", path, len(names), n, names[:min(len(names), 20)])
	}
	return names
}

// connected waits until n sessions have connected to the server again, including the observer's.
func (w *world) connected(n int) {
	w.t.Helper()
	var seen string
	ok := eventually(func() bool {
		seen, _ = w.server.Word("cons") // if the connection fails, there are no sessions
		return strings.Count(seen, "sid=0x") == n
	})
	if !ok {
		w.t.Fatalf("the server must get %d sessions again; it has:\n%s", n, seen)
	}
}

// eventually waits for what, and reports whether it became true in time.
func eventually(what func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if what() {
			return true
		}
	}
	return false
}

// contenders returns the folder with the nodes of a lock's waiters.
func contenders(kind, path string) string {
	if kind == "semaphore" {
		return path + "/locks"
	}
	return path
}

// queue makes a request a lock that is taken, and returns when a is in the queue.
func (w *world) queue(a *actor, kind, path string, more ...any) {
	w.t.Helper()
	folder := contenders(kind, path)
	n := len(w.nodes(folder))
	a.Send("lock", append([]any{kind, path}, more...)...)
	w.until(folder, n+1)
}
