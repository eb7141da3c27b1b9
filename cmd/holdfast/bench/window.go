package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/internal/histogram"
)

// window is one measurement: loops that work until its time is over.
type window struct {
	*workload
	begun    time.Time
	counting atomic.Bool
	answered chan struct{} // closed when a loop has had its first answer, or an error
	once     sync.Once     // of answered
	figure   chan struct{} // closed when there is something to show
	shown    sync.Once     // of figure

	releasedAt atomic.Int64 // of a contended name: just before the last holder called Release
	last       atomic.Int64 // the loop that held it last; -1: none yet
	endedAt    atomic.Int64 // when the counting ended; 0: not yet

	loops []loop
}

// loop is what one goroutine has measured.
type loop struct {
	ops     int
	latency histogram.Histogram
	longest time.Duration // wait
	errors  int
	err     error // the first
}

// work is one lock of a loop, or one read. It returns an error of the store.
type work func(ctx context.Context, i int) error

func newWindow(w *workload) *window {
	m := &window{workload: w, begun: time.Now(), answered: make(chan struct{}), figure: make(chan struct{}),
		loops: make([]loop, w.loops)}
	m.last.Store(-1)
	return m
}

// Before a measurement connections are opened. It begins after a tenth of its time, at most warmMost,
// but not before the first answer, if that comes within answerLimit.
const (
	warmMost    = 500 * time.Millisecond
	answerLimit = 3 * time.Second
)

// settle bounds how long the loops take to end after their time: Release waits for a silent store.
const settle = 3 * time.Second

// measure runs the loops and returns how long it counted. It returns earlier if ctx ends. Loops that
// have not ended then are left to abandon, which must end them.
func (m *window) measure(ctx context.Context, d time.Duration, do work, abandon func()) time.Duration {
	loops, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range m.loops {
		all.Go(func() { m.run(loops, i, do) })
	}
	backoff.Sleep(ctx, min(d/10, warmMost))
	await(ctx, m.answered)
	start := time.Now()
	m.counting.Store(true)
	backoff.Sleep(ctx, d)
	await(ctx, m.figure) // a slow store gets more time for its first one
	m.counting.Store(false)
	m.endedAt.Store(int64(time.Since(m.begun)))
	took := time.Since(start)
	cancel()
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	late := time.NewTimer(settle)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		abandon()
		<-ended
	}
	return took
}

// await waits for c, at most answerLimit.
func await(ctx context.Context, c <-chan struct{}) {
	t := time.NewTimer(answerLimit)
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	case <-ctx.Done():
	}
}

// run works until ctx ends. After an error it rests, so that a broken store is not flooded.
func (m *window) run(ctx context.Context, i int, do work) {
	me, pause := &m.loops[i], backoff.Pause{First: 5 * time.Millisecond, Most: 200 * time.Millisecond}
	for first := true; ctx.Err() == nil; first = false {
		err := do(ctx, i)
		if first {
			m.once.Do(func() { close(m.answered) })
		}
		switch {
		case err == nil:
			pause.Reset()
		case ctx.Err() != nil: // it only reports that
		default:
			if me.errors++; me.err == nil {
				me.err = err
			}
			pause.Wait(ctx)
		}
	}
}

// read is the work of the floor.
func (m *window) read(b driver.Backend, name string) work {
	return func(ctx context.Context, i int) error {
		began := time.Now()
		if _, err := b.Inspect(ctx, name); err != nil {
			return err
		}
		m.note(i, time.Since(began))
		return nil
	}
}

// pair is the work of a name that nobody else wants.
func (m *window) pair(mutex func(i int) *holdfast.Mutex) work {
	return func(ctx context.Context, i int) error {
		began := time.Now()
		l, err := mutex(i).Lock(ctx)
		if err != nil {
			return err
		}
		if err := l.Release(); err != nil {
			return err
		}
		m.note(i, time.Since(began))
		return nil
	}
}

// note counts an operation.
func (m *window) note(i int, took time.Duration) {
	if m.counting.Load() {
		m.loops[i].ops++
		m.record(i, took)
	}
}

func (m *window) record(i int, d time.Duration) {
	l := &m.loops[i].latency
	if l.Record(d); l.N == 1 {
		m.shown.Do(func() { close(m.figure) })
	}
}

// handOver is the work of a name that all loops want. A loop that gets the lock again, without
// another one in between, has had no hand-over.
func (m *window) handOver(mutex func(i int) *holdfast.Mutex) work {
	return func(ctx context.Context, i int) error {
		me, asked := &m.loops[i], time.Since(m.begun)
		l, err := mutex(i).Lock(ctx)
		if err != nil {
			if ended := time.Duration(m.endedAt.Load()); ended > asked { // it has waited up to the end
				me.longest = max(me.longest, ended-asked)
			}
			return err
		}
		got, last := time.Since(m.begun), m.last.Load()
		if m.counting.Load() {
			me.ops++
			me.longest = max(me.longest, got-asked)
			if last >= 0 && last != int64(i) {
				m.record(i, got-time.Duration(m.releasedAt.Load()))
			}
		}
		m.last.Store(int64(i))
		m.releasedAt.Store(int64(time.Since(m.begun)))
		return l.Release()
	}
}

// figures returns what the loops have measured in a time; floor is the median of the cheapest
// exchange, 0 if it is not known.
func (m *window) figures(took, floor time.Duration) (round Round, h *histogram.Histogram, errors int, err error) {
	h, counts := &histogram.Histogram{}, []int(nil)
	round.Took = took
	for i := range m.loops {
		l := &m.loops[i]
		h.Merge(&l.latency)
		counts = append(counts, l.ops)
		round.Ops += l.ops
		round.LongestWait = max(round.LongestWait, l.longest)
		if errors += l.errors; err == nil {
			err = l.err
		}
	}
	if h.N == 0 {
		if err == nil {
			err = fmt.Errorf("%w: nothing was finished within %v", holdfast.ErrUnavailable, took.Round(time.Millisecond))
		}
		return round, h, errors, err
	}
	round.PerSecond = float64(round.Ops) / took.Seconds()
	round.P50, round.P90, round.P99, round.Max = h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Max
	if m.contended() {
		round.Jain = jain(counts)
	}
	if m.names == 0 {
		floor = round.P50
	}
	if floor > 0 {
		round.TimesP50 = float64(round.P50) / float64(floor)
		round.TimesP90 = float64(round.P90) / float64(floor)
		round.TimesP99 = float64(round.P99) / float64(floor)
	}
	return round, h, errors, err
}
