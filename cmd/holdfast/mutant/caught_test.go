package mutant

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// sample covers most stores and classes.
var sample = []string{
	"client-no-clock", "redis-lease-in-seconds", "sqlite-permits-by-holders", "mariadb-lifo",
	"zookeeper-watch-lowest", "quorum-half-is-enough",
}

// one runs every time: it needs no server, and compiles little of the program. Any load shows it.
const one = "sqlite-permits-by-holders"

// size returns HOLDFAST_TEST_MUTANTS; if it is not set, sample at the full size of all tests.
func size() string {
	env := os.Getenv("HOLDFAST_TEST_MUTANTS")
	if env == "" && testenv.Deep() {
		env = "sample"
	}
	return env
}

// chosen returns the mutants to run: HOLDFAST_TEST_MUTANTS is full, sample, or names of some.
func chosen(t *testing.T) (list []Mutant) {
	t.Helper()
	names := sample
	switch env := size(); env {
	case "":
		i := slices.IndexFunc(All, func(m Mutant) bool { return m.ID == one })
		m := All[i]
		m.Run.Pause, m.Run.Slack = 20*time.Millisecond, 8*time.Second
		return []Mutant{m}
	case "sample":
	case "full":
		return All
	default:
		names = strings.Split(env, ",")
	}
	for _, name := range names {
		i := slices.IndexFunc(All, func(m Mutant) bool { return m.ID == name })
		if i < 0 {
			t.Fatalf("there is no mutant %q", name)
		}
		list = append(list, All[i])
	}
	return list
}

// atOnce is the number of parallel runs. They mostly wait for clocks.
const atOnce = 4

// A run with fewer grants than enough, on a busy machine, proves little when it finds no violation.
// It is repeated with twice the time, until it is longer times as long.
const (
	enough = 3000
	longer = 8
)

// TestMutantsCaught: verify finds each bug, in its class, and no violation without it.
func TestMutantsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	list := chosen(t)
	where := start(t, list)
	gate := make(chan struct{}, atOnce)
	type control struct {
		store Store
		run   Run
	}
	controls := map[control]bool{}
	for _, m := range list {
		controls[control{m.Store, m.Run}] = true
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			gate <- struct{}{}
			defer func() { <-gate }()
			binary := build(t, &m)
			for longest := longer * cmp.Or(m.Run.For, shortest); ; m.Run.For = 2 * cmp.Or(m.Run.For, shortest) {
				found := verify(t, binary, where(t, m.Store), m.Run)
				t.Logf("%s, %s, wants %v: %s", m.ID, m.Store, m.Class, found)
				if found.code == 1 && slices.ContainsFunc(m.Class, func(c history.Class) bool { return found.count(c) > 0 }) {
					return
				}
				if found.Grants >= enough || m.Run.For >= longest {
					t.Fatalf("%s\nexit code %d, and none of %v was found:\n%s", m.Bug, found.code, m.Class, found.out)
				}
			}
		})
	}
	n := 0
	for c := range controls {
		n++
		t.Run(fmt.Sprintf("none%d", n), func(t *testing.T) {
			t.Parallel()
			gate <- struct{}{}
			defer func() { <-gate }()
			found := verify(t, plain(), where(t, c.store), c.run)
			t.Logf("none, %s %v: %s", c.store, c.run.Flags(), found)
			if found.code != 0 {
				t.Errorf("exit code %d, without a bug:\n%s", found.code, found.out)
			}
		})
	}
}

// start builds the program without a bug, and returns where each store is. Servers start when
// needed.
func start(t *testing.T, list []Mutant) func(*testing.T, Store) string {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "holdfast")
	compile(t, binary)
	plain = func() string { return binary }
	ready := map[Store]string{}
	for _, m := range list {
		if _, there := ready[m.Store]; there {
			continue
		}
		var url string
		switch m.Store {
		case SQLite:
		case Redis:
			url = testenv.Redis(t).URL()
		case Quorum:
			servers := []string{testenv.Redis(t).Addr, testenv.Redis(t).Addr, testenv.Redis(t).Addr}
			url = "redis+quorum://" + strings.Join(servers, ",") + "?quarantine=4s"
		case MariaDB:
			url = "mysql://root@" + testenv.MariaDB(t).Addr + "/test"
		case Postgres:
			url = testenv.Postgres(t).DSN("postgres")
		case ZooKeeper:
			url = testenv.ZooKeeper(t, "maxSessionTimeout=40000").URL()
		}
		ready[m.Store] = url
		if m.Store == Quorum || m.Store == MariaDB || m.Store == Postgres {
			if out, err := exec.Command(binary, "--store", url, "init").CombinedOutput(); err != nil {
				t.Fatalf("init: %v: %s", err, out)
			}
		}
	}
	return func(t *testing.T, s Store) string {
		if s == SQLite {
			return "sqlite:" + filepath.Join(t.TempDir(), "locks")
		}
		return ready[s]
	}
}

// plain is the path of the program without a bug.
var plain func() string

// compiling lets one compiler work at a time, since it uses all cores.
var compiling sync.Mutex

// compile builds the program as releases are built.
func compile(t *testing.T, binary string, flags ...string) {
	t.Helper()
	compiling.Lock()
	defer compiling.Unlock()
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-C", "..", "-o", binary}, flags...),
		".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// build builds the program with a bug.
func build(t *testing.T, m *Mutant) string {
	t.Helper()
	dir := t.TempDir()
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "holdfast")
	compile(t, binary, "-overlay", overlay)
	return binary
}

// findings are the result of a run of verify.
type findings struct {
	code    int
	Grants  int
	Classes []struct {
		Class      history.Class
		Count      int
		Violations []string
	}
	out string // its output
}

func (f *findings) count(c history.Class) int {
	for _, v := range f.Classes {
		if v.Class == c {
			return v.Count
		}
	}
	return 0
}

// String returns the findings in a line.
func (f *findings) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "exit code %d, %d grants", f.code, f.Grants)
	for _, v := range f.Classes {
		if v.Count > 0 {
			fmt.Fprintf(&b, ", %d times %s", v.Count, v.Class)
		}
	}
	return b.String()
}

// verify runs the program's verify against a store.
func verify(t *testing.T, binary, url string, r Run) *findings {
	t.Helper()
	if strings.HasPrefix(url, "zookeeper:") {
		url += fmt.Sprintf("?session=%v", sessionFor(r))
	}
	limit := cmp.Or(r.For, shortest) + 3*time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append([]string{"verify", "--json"}, r.Flags()...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url, "TMPDIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &stderr, 5*time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("verify did not end within %v: %s", limit, stderr.Bytes())
	}
	f := &findings{out: out.String() + stderr.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	f.code = cmd.ProcessState.ExitCode()
	if err := json.Unmarshal(out.Bytes(), f); err != nil {
		t.Fatalf("exit code %d, %v: %s", f.code, err, f.out)
	}
	return f
}

// sessionFor returns ZooKeeper's session timeout for the TTL.
func sessionFor(r Run) time.Duration {
	return (cmp.Or(r.TTL, time.Second) * 5 / 3).Round(time.Millisecond)
}
