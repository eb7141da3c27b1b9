//go:build linux

package torture

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

const (
	workers = 4
	rounds  = 2000
)

func TestRedis(t *testing.T) {
	torture(t, testenv.Redis(t).URL(), nil, nil)
}

func TestZooKeeper(t *testing.T) {
	torture(t, testenv.ZooKeeper(t).URL(), nil, nil)
}

// TestZooKeeperEnsemble kills the leader too, now and then.
func TestZooKeeperEnsemble(t *testing.T) {
	e := testenv.ZooKeeperEnsemble(t, 3)
	dead := -1
	heal := func() {
		for i, z := range e.Servers {
			words, ended := z.Ended()
			if ended && i != dead {
				t.Logf("server %d has ended by itself: %s", i, words)
			}
			if ended {
				z.Start()
			}
		}
		dead = -1
	}
	torture(t, e.URL(), func() {
		heal()
		dead = e.Leader()
		e.Servers[dead].Kill()
	}, heal)
}

// TestMariaDB kills the server too, now and then.
func TestMariaDB(t *testing.T) {
	s := testenv.MariaDB(t)
	store := "mysql:" + s.DSN("root", "")
	initialise(t, store, mysql.Dialect())
	torture(t, store, func() { s.Restart(false) }, nil)
}

// TestPostgres kills the server too, which then has forgotten what was not forced to the disk: the
// releases and hand-overs of the last seconds.
func TestPostgres(t *testing.T) {
	s := testenv.Postgres(t, "wal_writer_delay=10s")
	store := s.DSN("postgres")
	initialise(t, store, postgres.Dialect())
	torture(t, store, func() { s.Restart(false) }, nil)
}

func initialise(t *testing.T, store string, d sqllock.Dialect) {
	t.Helper()
	b, err := open(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqllock.Init(t.Context(), b.(pooled).db, d); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSQLite(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test kills processes for a minute")
	}
	torture(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"), nil, nil)
}

// torture lets processes count under one lock while it kills and stops them, and checks
// what they did. harm, if there is any, spoils the store from time to time, and heal, if there is any, undoes that after the last time. TORTURE_SEED repeats the schedule of faults of an earlier run (the
// processes' own timing is theirs).
func torture(t *testing.T, store string, harm, heal func()) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("TORTURE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("TORTURE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	crew := make([]*worker, workers)
	for i := range crew {
		crew[i] = &worker{t: t, dir: dir, store: store, id: i, seed: seed}
		crew[i].start()
	}
	t.Cleanup(func() {
		for _, w := range crew {
			w.kill()
		}
	})
	const harmEvery, harmsDue = 6 * time.Second, 3
	kills, stops, harms := 0, 0, 0
	faultsEnd, end := time.Now().Add(40*time.Second), time.Now().Add(5*time.Minute)
	nextHarm := time.Now().Add(harmEvery / 2)
	for running := workers; running > 0; {
		time.Sleep(time.Duration(50+rng.IntN(250)) * time.Millisecond)
		if time.Now().After(end) {
			t.Fatal("the workers do not finish")
		}
		if harm != nil && time.Now().After(nextHarm) && (time.Now().Before(faultsEnd) || harms < harmsDue) {
			harm()
			harms++
			nextHarm = time.Now().Add(harmEvery)
		}
		if heal != nil && time.Now().After(faultsEnd) && harms >= harmsDue {
			heal()
			heal = nil
		}
		if time.Now().Before(faultsEnd) {
			switch w := crew[rng.IntN(workers)]; rng.IntN(3) {
			case 0:
				if w.kill() {
					kills++
					w.start()
				}
			case 1:
				if w.stop(ttl + time.Duration(rng.IntN(int(ttl)))) {
					stops++
				}
			}
		}
		running = 0
		for _, w := range crew {
			if !w.finished() {
				running++
			}
		}
	}
	for _, w := range crew {
		if w.err != nil {
			t.Errorf("worker %d: %v", w.id, w.err)
		}
	}
	if harm != nil && harms < harmsDue {
		t.Errorf("the store was spoilt %d times only: the run proves nothing", harms)
	}
	t.Logf("the store was spoilt %d times", harms)
	judge(t, dir, kills, stops)
}

// judge checks the resource and the log of grants.
func judge(t *testing.T, dir string, kills, stops int) {
	r, err := openResource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.f.Close()
	s := r.atomically(func(*state) {})
	grants, valid := read(t, filepath.Join(dir, "log"))
	t.Logf("%d grants, %d kills, %d stops; accepted %d writes, refused %d", len(grants), kills, stops, s.Accepted, s.Refused)
	// A killed worker may have written without counting the round as done.
	if s.Value != s.Accepted || s.Value < workers*rounds || s.Value > workers*rounds+uint64(kills) {
		t.Errorf("the count is %d after %d accepted writes; %d rounds and up to %d more were due", s.Value, s.Accepted, workers*rounds, kills)
	}
	if kills < 5 || stops < 5 {
		t.Errorf("only %d kills and %d stops: the run proves nothing", kills, stops)
	}
	// Tokens are unique, and a grant that was asked for after another was given has the larger.
	seen := map[uint64]bool{}
	for _, g := range grants {
		if seen[g.token] {
			t.Errorf("token %d was granted twice", g.token)
		}
		seen[g.token] = true
	}
	byReturn := slices.SortedFunc(slices.Values(grants), func(a, b event) int { return cmp.Compare(a.ret, b.ret) })
	prefix := make([]uint64, len(byReturn)+1) // highest token of the first i grants
	for i, g := range byReturn {
		prefix[i+1] = max(prefix[i], g.token)
	}
	before := func(at int64) uint64 {
		i, _ := slices.BinarySearchFunc(byReturn, at, func(g event, at int64) int { return cmp.Compare(g.ret, at) })
		return prefix[i]
	}
	for _, g := range grants {
		if h := before(g.call); h >= g.token {
			t.Errorf("token %d was granted after token %d", g.token, h)
		}
	}
	// Nobody believed in a lease when the next had been given already.
	for _, v := range valid {
		if h := before(v.call); h > v.token {
			t.Errorf("the holder of token %d believed in it after token %d had been granted", v.token, h)
		}
	}
}

type event struct {
	token     uint64
	call, ret int64
}

func read(t *testing.T, path string) (grants, valid []event) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kind string
		var e event
		if _, err := fmt.Sscan(lines.Text(), &kind, &e.token, &e.call, &e.ret); err != nil {
			t.Fatalf("log: %q: %v", lines.Text(), err)
		}
		if kind == "G" {
			grants = append(grants, e)
		} else {
			valid = append(valid, e)
		}
	}
	return grants, valid
}

// worker is one process, or its successor after a kill.
type worker struct {
	t          *testing.T
	dir, store string
	id         int
	seed       uint64

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // the process has ended
	err  error
	hurt bool // the process was killed by the test
}

func (w *worker) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TORTURE_DIR="+w.dir, "TORTURE_STORE="+w.store, fmt.Sprint("TORTURE_ID=", w.id),
		fmt.Sprint("TORTURE_ROUNDS=", rounds), fmt.Sprint("TORTURE_SEED=", w.seed))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	w.cmd, w.done, w.hurt = cmd, done, false
	go func() {
		err := cmd.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cmd == cmd && !w.hurt {
			w.err = err
		}
		close(done)
	}()
}

// kill ends the process as kill -9 does; false if it had ended by itself.
func (w *worker) kill() bool {
	if w.finished() {
		return false
	}
	w.mu.Lock()
	w.hurt = true
	_ = w.cmd.Process.Kill()
	done := w.done
	w.mu.Unlock()
	<-done
	return true
}

// stop freezes the process for d.
func (w *worker) stop(d time.Duration) bool {
	if w.finished() {
		return false
	}
	w.mu.Lock()
	p := w.cmd.Process
	w.mu.Unlock()
	_ = p.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = p.Signal(syscall.SIGCONT)
	return true
}

func (w *worker) finished() bool {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	select {
	case <-done:
		return true
	default:
		return false
	}
}
