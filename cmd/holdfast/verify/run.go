package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// Options say what to run. Zero means the default given here. URL is required, and Worker or External.
type Options struct {
	URL string // of the store

	// Worker returns a command, not started, of a process that calls Work with its standard input
	// and output.
	Worker func() *exec.Cmd

	// External is the shell's command of another lock's worker, in place of Worker: it has the
	// protocol that docs/verify.md describes. Clients, Mix and Own do not apply to it.
	External string

	// Beside is how many of the processes are nevertheless Worker's, at least one less than all. Both
	// kinds take the same locks, which are mutexes whatever Mix says: the two locks must be one. 0:
	// none. It needs External and Worker.
	Beside int

	silence time.Duration // for tests: silenceLimit of workers that are ready

	Processes int // worker processes: 4
	Clients   int // of each process: 2
	Loops     int // goroutines of each process that take locks: 8
	Names     int // of each kind of lock: 2

	TTL      time.Duration // requested: 1 s. The store may grant another
	Duration time.Duration // until the workers must finish: 30 s
	Ops      int64         // grants after which they finish earlier: 300,000. At most MaxOps
	Seed     uint64        // of the schedule of faults and of the workers' choices: random
	Kinds    []string      // of faults to inject: all that the store allows. KindNone alone: none
	Faults   []Fault       // further ones
	Mix      string        // see Job.Mix: MixAll
	Own      bool          // see Job.Own
	Pause    time.Duration // how long each loop pauses between two locks, on average: none
	// See history.Options: 1 s. The extra time of the store's sessions is added.
	Slack    time.Duration
	MaxNotes int // maximum number of notes: 20

	// Except are classes that the deployment does not promise, in addition to those that Run
	// excepts.
	Except []history.Class

	// Dir is the folder of the histories; it must be empty or not exist. "": a temporary folder,
	// which is kept only after a finding.
	Dir string

	// Say receives progress messages of one line for people. Nil: none.
	Say func(text string)
}

// MaxOps is the largest Options.Ops: judging takes about 3.5 kB of memory for each grant.
const MaxOps = 1_000_000

func (o Options) withDefaults() Options {
	o.Processes, o.Clients = cmp.Or(o.Processes, 4), cmp.Or(o.Clients, 2)
	o.Loops, o.Names = cmp.Or(o.Loops, max(8, o.Clients)), cmp.Or(o.Names, 2)
	o.TTL, o.Duration, o.Slack = cmp.Or(o.TTL, time.Second), cmp.Or(o.Duration, 30*time.Second), cmp.Or(o.Slack,
		time.Second)
	o.Ops, o.Mix, o.MaxNotes = cmp.Or(o.Ops, 300_000), cmp.Or(o.Mix, MixAll), cmp.Or(o.MaxNotes, 20)
	for o.Seed == 0 {
		var b [4]byte
		_, _ = rand.Read(b[:]) // it cannot fail
		o.Seed = uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24
	}
	if o.Beside > 0 {
		o.Mix = MixMutex
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	return o
}

func (o *Options) check() error {
	for _, c := range []struct {
		what     string
		n        int64
		min, max int64
	}{
		{"number of processes", int64(o.Processes), 2, 64},
		{"number of clients", int64(o.Clients), 1, 100},
		{"number of loops", int64(o.Loops), int64(o.Clients), 1000},
		{"number of names", int64(o.Names), 1, 1000},
		{"number of grants", o.Ops, 1, MaxOps},
	} {
		if c.n < c.min || c.n > c.max {
			return fmt.Errorf("%w %s %d: allowed are %d to %d", holdfast.ErrInvalid, c.what, c.n, c.min, c.max)
		}
	}
	switch {
	case o.Beside != 0 && o.External == "":
		return fmt.Errorf("%w number of holdfast's processes %d: there is no other worker beside them", holdfast.ErrInvalid,
			o.Beside)
	case o.Beside < 0 || o.Beside >= o.Processes:
		return fmt.Errorf("%w number of holdfast's processes %d: allowed are 0 to %d, of %d processes in all",
			holdfast.ErrInvalid, o.Beside, o.Processes-1, o.Processes)
	case o.TTL < driver.MinTTL || o.TTL > driver.MaxTTL:
		return fmt.Errorf("%w TTL %v: allowed are %v to %v", holdfast.ErrInvalid, o.TTL, driver.MinTTL, driver.MaxTTL)
	case o.Mix != MixAll && o.Mix != MixMutex:
		return fmt.Errorf("%w mix %q: allowed are %s and %s", holdfast.ErrInvalid, o.Mix, MixAll, MixMutex)
	case o.Pause < 0:
		return fmt.Errorf("%w pause %v: allowed are 0 and more", holdfast.ErrInvalid, o.Pause)
	case o.Slack < 0:
		return fmt.Errorf("%w slack %v: allowed are 0 and more", holdfast.ErrInvalid, o.Slack)
	}
	return nil
}

// shortest returns the least Duration for a TTL: some faults last three TTLs, and need time before
// and after.
func shortest(ttl time.Duration) time.Duration { return 6 * ttl }

// run is one Run.
type run struct {
	Options
	store      *open.Store   // nil: only External knows it
	address    address       // of the store, for External
	place      string        // of the store, without credentials
	ttl        time.Duration // as the store grants it
	remote     bool          // the workers reach the store through the relay
	kinds      []string
	prefix     string
	dir        string
	keep       bool // keep dir
	rec        *history.Recorder
	recRes     *history.Recorder
	relay      *workerRelay
	resource   *Resource
	resourceAt string
	key        string // of the relay and the resource
	begun      time.Time
	abort      context.CancelCauseFunc // ends the load early

	mu            sync.Mutex
	change        chan struct{} // closed at a report of a worker, or its end
	allEnded      chan struct{} // closed when all workers have ended
	workers       []*process    // the current runs
	all           []*process
	past          Progress // sum of the ended ones
	launched      bool     // all workers have been ready
	finishing     bool
	failures      int
	faults        map[string]int // injected, by kind
	hit           Sided          // faults of processes
	activeFaults  []string       // what is broken now
	notes         []string
	followers     sync.WaitGroup
	waitFollowers func() // waits for followers, when all workers have ended
}

// errEnough ends the load before its time.
var errEnough = errors.New("enough grants")

// Run tests a store, and judges the history. The error says why there was no run:
// driver.ErrInvalid, ErrUnavailable, ErrRefused and so on, or a *WorkerError. Once there is load,
// Run returns a Result. When ctx ends, the run ends early and in order, and Run judges what it has.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	r := &run{Options: o.withDefaults(), change: make(chan struct{}), allEnded: make(chan struct{}),
		faults: map[string]int{}, begun: time.Now()}
	r.waitFollowers = sync.OnceFunc(func() {
		close(r.allEnded)
		r.followers.Wait()
	})
	if err := r.check(); err != nil {
		return nil, err
	}
	connect := r.connect
	if r.External != "" {
		if r.address, err = r.externalAddress(); err != nil {
			return nil, open.Redact(err, r.URL)
		}
		if r.Beside == 0 {
			connect = r.reach
		}
	}
	if err := connect(ctx); err != nil {
		return nil, open.Redact(err, r.URL)
	}
	if r.store != nil {
		defer func() { _ = r.store.Close() }()
	}
	defer func() { r.release(err != nil) }()
	if err := r.prepare(); err != nil {
		return nil, err
	}
	load, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r.abort = abort
	if err := r.launch(load); err != nil {
		return nil, open.Redact(err, r.URL)
	}
	r.exercise(load)
	r.finish()
	return r.conclude(ctx)
}

// openLimit bounds the first exchange with the store, and each of those at the end.
const openLimit = 15 * time.Second

// connect opens the store, tries it, and learns the lease duration.
func (r *run) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if r.store, err = open.Open(ctx, r.URL); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = r.store.Close()
		}
	}()
	if r.place = r.store.Place; r.place == "" {
		return fmt.Errorf("%w store URL: other processes cannot reach this store", holdfast.ErrInvalid)
	}
	if r.remote = r.store.Name() != "sqlite"; !r.remote {
		r.URL = r.store.Place // for the workers, even if it is the user's own file
	}
	if r.kinds, err = checkKinds(r.Kinds, r.remote, r.Faults); err != nil {
		return err
	}
	c, err := holdfast.New(ctx, r.store, &holdfast.Config{TTL: r.TTL})
	if err != nil {
		return err
	}
	r.ttl = c.TTL()
	r.prefix = "verify/" + random(4) + "/"
	// A probe without an answer may have its lock: the next takes another. On a machine that stands still
	// for a moment, a probe may lose its lock.
	err = probe(ctx, c.Mutex(r.prefix+"probe/1"))
	for i := range probes - 1 {
		if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain) &&
			!errors.Is(err, holdfast.ErrLost) {
			break
		}
		pause(ctx, r.ttl/4)
		err = probe(ctx, c.Mutex(fmt.Sprintf("%sprobe/%d", r.prefix, i+2)))
	}
	if err = errors.Join(err, c.Close(ctx)); err != nil {
		return err
	}
	return r.checkDuration()
}

// ErrDuration is an ErrInvalid: Options.Duration is too short for the leases.
var ErrDuration = fmt.Errorf("%w duration", holdfast.ErrInvalid)

func (r *run) checkDuration() error {
	if least := shortest(r.ttl); r.Duration < least {
		return fmt.Errorf("%w %v: leases last %v here, so it takes at least %v", ErrDuration, r.Duration, r.ttl, least)
	}
	return nil
}

// probes bounds the attempts to use a store that serves, but not at once: replicas may be slow to
// follow.
const probes = 5

// probe takes a lock and releases it.
func probe(ctx context.Context, m *holdfast.Mutex) error {
	l, err := m.TryLock(ctx)
	if err == nil {
		err = l.Release()
	}
	return err
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it cannot fail
	return hex.EncodeToString(b)
}

// prepare makes the folder and starts the resource and the relay.
func (r *run) prepare() (err error) {
	if r.keep = r.Dir != ""; r.keep {
		err = os.MkdirAll(r.Dir, 0o700)
		if err == nil {
			r.dir, err = filepath.EvalSymlinks(r.Dir) // from here on nobody can lead it elsewhere
		}
		if err == nil {
			err = private(r.dir)
		}
		if err == nil {
			var there []os.DirEntry
			if there, err = os.ReadDir(r.dir); err == nil && len(there) > 0 {
				err = errors.New("the folder is not empty")
			}
		}
	} else {
		r.dir, err = os.MkdirTemp("", "holdfast-verify-*")
	}
	if err != nil {
		return fmt.Errorf("%w folder for histories: %w", holdfast.ErrInvalid, err)
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return err
	}
	if r.rec, err = history.Create(r.path("coordinator")); err != nil {
		return err
	}
	if r.recRes, err = history.Create(r.path("resource")); err != nil {
		return err
	}
	r.key = random(16)
	if r.relay, err = newWorkerRelay(r.key); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.resource, r.resourceAt = NewResource(r.recRes, r.key), ln.Addr().String()
	// Until Close; before that it fails only with the machine.
	go func() { _ = r.resource.Serve(ln) }()
	r.rec.Record(history.Event{Kind: history.Run, TTL: r.ttl,
		Text: fmt.Sprintf("%s, seed %d, %d processes", r.place, r.Seed, r.Processes)})
	return nil
}

func (r *run) path(name string) string { return filepath.Join(r.dir, name+".jsonl") }

// release ends what prepare started, and every remaining worker. failed: there was no run.
func (r *run) release(failed bool) {
	r.mu.Lock()
	r.finishing = true
	all := slices.Clone(r.all)
	r.mu.Unlock()
	for _, p := range all {
		p.kill()
	}
	r.waitFollowers()
	if r.relay != nil {
		r.relay.Close()
	}
	if r.resource != nil {
		r.resource.Close()
	}
	_, _ = r.rec.Close(), r.recRes.Close() // the judge has read them
	if failed && !r.keep && r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// note keeps a remark on why the run proves less than it should.
func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := open.Scrub(fmt.Sprintf(format, args...), r.URL)
	if len(r.notes) < r.MaxNotes && !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, strings.ToValidUTF8(text, "?"))
	}
}
