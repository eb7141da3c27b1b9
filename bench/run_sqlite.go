package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

func sqliteScenarios() []scenario {
	local := func(run func(context.Context, *testbed, string) (metrics, error)) []subject {
		var out []subject
		for _, name := range []string{"flock", "holdfast-sqlite"} {
			out = append(out, subject{name, func(ctx context.Context, b *testbed) (metrics, error) {
				dir, err := os.MkdirTemp(b.dir, "sqlite-")
				if err != nil {
					return nil, err
				}
				defer os.RemoveAll(dir)
				return run(ctx, &testbed{dir: dir, duration: b.duration}, name)
			}})
		}
		return out
	}
	out := []scenario{{
		name: "sqlite/pair", store: "sqlite",
		title: "One file of this machine: uncontended lock and unlock, one goroutine.",
		columns: []column{
			dur("p50", "p50"), dur("p99", "p99"), num("persec", "pairs/s"),
			num("allocs", "allocs"), num("bytes", "bytes"), dur("cpu", "client CPU"),
		},
		subjects: local(func(ctx context.Context, b *testbed, name string) (metrics, error) {
			c, err := openLocal(ctx, name, b.dir, func() {})
			if err != nil {
				return nil, err
			}
			m, err := pairs(ctx, b, new(wire), c.contender("pair"))
			return m, errors.Join(err, c.close())
		}),
	}}
	for _, c := range []struct {
		n    int
		hold time.Duration
		name string
		what string
	}{
		{2, 0, "sqlite/2", "empty critical section"}, {32, 0, "sqlite/32", "empty critical section"},
		{2, work2ms, "sqlite/2-work", "held for 2 ms"}, {32, work2ms, "sqlite/32-work", "held for 2 ms"},
	} {
		out = append(out, scenario{
			name: c.name, store: "sqlite",
			title: fmt.Sprintf("One name, %s, %d processes.", c.what, c.n),
			columns: []column{
				dur("p50", "hand-over p50"), dur("p99", "p99"), num("persec", "acquisitions/s"), dur("waitmax", "longest wait"),
				ratio("jain", "Jain"), pct("self", "same again"), num("overtaken", "out of order"), num("violations", "violations"),
			},
			subjects: local(func(ctx context.Context, b *testbed, name string) (metrics, error) {
				return runProcesses(ctx, b, name, c.n, c.hold)
			}),
		})
	}
	return append(out, scenario{
		name: "sqlite/idle", store: "sqlite",
		title:   "CPU of a process that waits 10 s for a lock that another process holds, in percent of a core.",
		columns: []column{pct("idle", "idle waiter")},
		subjects: local(func(ctx context.Context, b *testbed, name string) (metrics, error) {
			if name == "flock" {
				return nil, errors.New("not measured: flock(2) sleeps in the kernel")
			}
			return runIdle(ctx, b, name)
		})[1:],
	})
}

// work2ms is the hold time of scenarios with work. The other contenders are in the queue again
// before it ends, so that a hand-over is measured and not the contention for the file.
const work2ms = 2 * time.Millisecond

func runProcesses(ctx context.Context, b *testbed, name string, n int, hold time.Duration) (m metrics, err error) {
	// The store is created, and kept open, before any contender starts.
	c, err := openLocal(ctx, name, b.dir, func() {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	ramp := b.duration / 5
	outs, s, err := spawn(ctx, job{Library: name, Dir: b.dir, Hold: hold}, n, ramp+b.duration)
	if err != nil {
		return nil, err
	}
	m = judge(outs, s.Start+int64(ramp), s.End)
	if m["n"] == 0 {
		return nil, errNobody
	}
	return m, nil
}

// judge derives the metrics from the events of all processes; of acquisitions it counts those from
// from on.
func judge(outs []outcome, from, end int64) metrics {
	type acquisition struct {
		event
		who int
	}
	var all []acquisition
	for who, o := range outs {
		for _, e := range o.Events {
			all = append(all, acquisition{e, who})
		}
	}
	slices.SortFunc(all, func(a, b acquisition) int { return int(a.Got - b.Got) })
	var handover hist
	counts := make([]float64, len(outs))
	var n, self, violations, overtaken float64
	var longest, lastAsked int64
	for i, a := range all {
		if i > 0 && (a.Got < all[i-1].Left || a.Token != 0 && a.Token <= all[i-1].Token) {
			violations++
		}
		// A request made after a joined the queue must not have been granted before a.
		if a.Joined != 0 && lastAsked > a.Joined {
			overtaken++
		}
		lastAsked = max(lastAsked, a.Asked)
		if a.Got < from || a.Got > end {
			continue
		}
		n++
		counts[a.who]++
		longest = max(longest, a.Got-a.Asked)
		if i == 0 {
			continue
		}
		if all[i-1].who == a.who {
			self++
		} else {
			handover.Record(time.Duration(a.Got - all[i-1].Left))
		}
	}
	m := metrics{
		"n": n, "persec": n / time.Duration(end-from).Seconds(), "waitmax": float64(longest),
		"overtaken": overtaken, "violations": violations,
	}
	m.p50p99("", &handover)
	var sum, squares float64
	for _, c := range counts {
		sum, squares = sum+c, squares+c*c
	}
	if n > 0 {
		m["jain"], m["self"] = sum*sum/(float64(len(counts))*squares), 100*self/n
	}
	return m
}

const idleFor = 10 * time.Second

func runIdle(ctx context.Context, b *testbed, name string) (metrics, error) {
	c, err := openLocal(ctx, name, b.dir, func() {})
	if err != nil {
		return nil, err
	}
	if err := c.hold(ctx, "one"); err != nil {
		return nil, errors.Join(err, c.close())
	}
	outs, _, err := spawn(ctx, job{Library: name, Dir: b.dir, Idle: true}, 1, idleFor)
	if err = errors.Join(err, c.close()); err != nil {
		return nil, err
	}
	return metrics{"idle": outs[0].Idle}, nil
}

// spawn runs n workers, starts them together when all are ready, and collects their results.
func spawn(ctx context.Context, j job, n int, d time.Duration) ([]outcome, span, error) {
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	text, err := json.Marshal(j)
	if err != nil {
		return nil, span{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, span{}, err
	}
	outs := make([]outcome, n)
	ready, begin := make(chan error, n), make(chan struct{})
	var s span
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			cmd := exec.CommandContext(ctx, self)
			cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
			servers.Bind(cmd)
			errs[i] = drive(cmd, &outs[i], ready, begin, &s)
		})
	}
	var failed error // the first; later ones follow from it
	for range n {
		if err := <-ready; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	// A little later than now, so that all have received it.
	s.Start = clock() + int64(50*time.Millisecond)
	s.End = s.Start + int64(d)
	close(begin)
	group.Wait()
	return outs, s, firstError(append([]error{failed}, errs...)...)
}

// drive runs one worker. It sends to ready exactly once.
func drive(cmd *exec.Cmd, o *outcome, ready chan<- error, begin <-chan struct{}, s *span) error {
	in, ierr := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	diag, derr := cmd.StderrPipe()
	err := errors.Join(ierr, oerr, derr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		ready <- err
		return nil
	}
	lines := bufio.NewReader(diag)
	line, rerr := lines.ReadString('\n')
	var rest []byte
	var read sync.WaitGroup
	read.Go(func() { rest, _ = io.ReadAll(lines) })
	if rerr == nil && line == readyLine {
		ready <- nil
		<-begin
		err = json.NewEncoder(in).Encode(s)
	}
	err = errors.Join(err, in.Close(), gob.NewDecoder(out).Decode(o))
	read.Wait()
	err = errors.Join(err, cmd.Wait())
	switch {
	case o.Err != "": // the worker's own error is the cause of the others
		err = fmt.Errorf("worker: %s", o.Err)
	case err != nil:
		err = fmt.Errorf("worker: %w: %s%s", err, line, rest)
	}
	if line != readyLine {
		ready <- cmp.Or(err, errors.New("worker: ended early"))
		return nil
	}
	return err
}
