package main

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"

	_ "modernc.org/sqlite" // the driver that package sqlite uses
)

// workerEnv makes this program a contender of a scenario with many processes. It contains the job;
// the start and the end come on standard input, and the events go to standard output.
const workerEnv = "HOLDFAST_BENCH_WORKER"

type job struct {
	Library string
	Dir     string
	Hold    time.Duration // how long to hold the lock
	Idle    bool          // wait once, to the end, and report the CPU time of the wait
}

const readyLine = "ready\n" // on standard error, when a worker could begin

// span is when a worker contends, on clock.
type span struct{ Start, End int64 }

// event is one acquisition; all times are readings of clock.
type event struct {
	Asked  int64 // lock was called
	Joined int64 // it was in the queue by then; 0 if it did not have to wait
	Got    int64 // lock returned
	Left   int64 // just before unlock was called
	Token  uint64
}

// outcome is a worker's result.
type outcome struct {
	Events []event
	Idle   float64 // CPU of an idle wait, in percent of a core
	Err    string
}

// clock returns the machine's monotonic clock, which is the same for all processes.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every system that this builds for has it
	}
	return ts.Nano()
}

func runWorker(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fmt.Errorf("%s: %w", workerEnv, err)
	}
	o, err := work(j)
	if err != nil {
		o.Err = err.Error()
	}
	return gob.NewEncoder(os.Stdout).Encode(o)
}

func work(j job) (o outcome, err error) {
	var joined atomic.Int64
	c, err := openLocal(context.Background(), j.Library, j.Dir, func() { joined.CompareAndSwap(0, clock()) })
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	k := c.contender("one")
	fmt.Fprint(os.Stderr, readyLine)
	var s span
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&s); err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.End-clock()))
	defer cancel()
	if j.Idle {
		o.Idle, err = idle(ctx, k, &joined)
		return o, err
	}
	time.Sleep(time.Duration(s.Start - clock()))
	for clock() < s.End {
		e := event{Asked: clock()}
		joined.Store(0)
		if err := k.lock(ctx); err != nil {
			if ctx.Err() != nil {
				break
			}
			return o, fmt.Errorf("lock: %w", err)
		}
		e.Got, e.Joined = clock(), joined.Load()
		if h, ok := k.(*holdfastContender); ok {
			e.Token = h.l.Token()
		}
		if j.Hold > 0 {
			time.Sleep(j.Hold)
		}
		e.Left = clock()
		if err := k.unlock(); err != nil {
			return o, fmt.Errorf("unlock: %w", err)
		}
		o.Events = append(o.Events, e)
	}
	return o, nil
}

// idle waits until ctx ends for a lock that another process holds. It returns this process's CPU
// usage, from half a second after it joined the queue.
func idle(ctx context.Context, k contender, joined *atomic.Int64) (float64, error) {
	type reading struct {
		at  time.Time
		cpu time.Duration
	}
	first := make(chan reading, 1)
	go func() {
		for joined.Load() == 0 && ctx.Err() == nil {
			pause(ctx, 20*time.Millisecond)
		}
		pause(ctx, 500*time.Millisecond)
		first <- reading{time.Now(), cpuTime()}
	}()
	err := k.lock(ctx)
	end := reading{time.Now(), cpuTime()}
	switch {
	case err == nil:
		return 0, errors.Join(errors.New("got the lock that another process holds"), k.unlock())
	case ctx.Err() == nil:
		return 0, err
	case joined.Load() == 0:
		return 0, errors.New("never joined the queue")
	}
	r := <-first
	return 100 * float64(end.cpu-r.cpu) / float64(end.at.Sub(r.at)), nil
}

// openLocal opens a library whose store is a file.
func openLocal(ctx context.Context, library, dir string, waiting func()) (client, error) {
	if library == "flock" {
		return flockClient(dir), nil
	}
	backend, err := sqlite.Open(filepath.Join(dir, "locks.db"), nil)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(ctx, backend, &holdfast.Config{Observer: &holdfast.Observer{
		Waiting: func(holdfast.Waiting) { waiting() },
	}})
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	return &holdfastClient{c: c, backend: backend}, nil
}

// flockClient locks files of a folder with flock(2): the floor of locks on one machine. No lease,
// no token, no order.
type flockClient string

func (d flockClient) contender(name string) contender {
	return &flockContender{path: filepath.Join(string(d), name+".lock")}
}

func (d flockClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (d flockClient) close() error { return nil }

type flockContender struct {
	path string
	f    *os.File
}

// lock ignores ctx: flock(2) cannot be cancelled.
func (k *flockContender) lock(context.Context) (err error) {
	if k.f == nil {
		if k.f, err = os.OpenFile(k.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return err
		}
	}
	for {
		if err = syscall.Flock(int(k.f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (k *flockContender) unlock() error { return syscall.Flock(int(k.f.Fd()), syscall.LOCK_UN) }
