package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"

	"github.com/holdfast-lock/holdfast/open"
)

// ErrOrphan is the error of a worker whose input has ended without Finish: its coordinator has
// ended.
var ErrOrphan = errors.New("the input has ended: the coordinator has ended")

// worker is a process that takes locks.
type worker struct {
	job     *Job
	rec     *history.Recorder
	without [allKinds]atomic.Bool // kinds of locks that the store lacks

	grants, errors atomic.Int64
	lastError      atomic.Pointer[string]

	mu    sync.Mutex
	loops []*loop
}

// Work is a worker process. It reads its Job and the lines after it from in, takes locks of the
// store, and reports progress on out. It ends in order when in has Finish or ctx ends. If in ends
// before that, it returns at once with ErrOrphan, and the process should end. ErrJob means that it
// got no valid Job.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	orders := read(in)
	var j *Job
	select {
	case o := <-orders:
		if o.err != nil {
			return o.err
		}
		var err error
		if j, err = parseJob(o.line); err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	rec, err := history.Create(filepath.Join(j.Dir, j.Process+".jsonl"))
	if err != nil {
		return fmt.Errorf("the history: %w", err)
	}
	rec.Process = j.Process
	w := &worker{job: j, rec: rec}
	runCtx, finish := context.WithCancel(ctx)
	defer finish()
	ready := make(chan struct{})
	trouble := make(chan error, 1)
	go func() { trouble <- w.report(runCtx, out, ready) }()
	done := make(chan error, 1)
	go func() { done <- w.run(runCtx, ready) }()
	for {
		select {
		case o := <-orders:
			if runCtx.Err() != nil {
				continue // it ends already
			}
			if o.err != nil {
				return o.err
			}
			finish()
		case err := <-trouble:
			if err != nil {
				return err
			}
			trouble = nil
		case err := <-done:
			return errors.Join(err, rec.Close())
		}
	}
}

// order is a line of the input, or why there are no more.
type order struct {
	line []byte
	err  error
}

// read returns the lines of in, in order: a Job, Finish, and the end of input.
func read(in io.Reader) <-chan order {
	orders := make(chan order, 3) // its goroutine ends with in, even without a reader
	go func() {
		r := bufio.NewReaderSize(in, maxJob)
		for n := 0; ; n++ {
			line, err := r.ReadSlice('\n')
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				err = fmt.Errorf("%w: a line of the input is longer than %d bytes", ErrJob, maxJob)
			case err != nil:
				err = ErrOrphan
			case n == 1 && string(line) != Finish+"\n" || n > 1:
				err = fmt.Errorf("%w: a line of the input that is not %q", ErrJob, Finish)
			}
			orders <- order{bytes.Clone(line), err}
			if err != nil {
				return
			}
		}
	}()
	return orders
}

// failed counts a failed call.
func (w *worker) failed(err error) {
	w.errors.Add(1)
	text := open.Scrub(err.Error(), w.job.URL)
	w.lastError.Store(&text)
}

// reportEvery is the time between two lines of Progress.
const reportEvery = 200 * time.Millisecond

// report writes lines of Progress once all clients are connected. A coordinator that does not read
// must not stop the loops.
func (w *worker) report(runCtx context.Context, out io.Writer, ready <-chan struct{}) error {
	select {
	case <-ready:
	case <-runCtx.Done():
		return nil
	}
	lines := json.NewEncoder(out)
	if err := lines.Encode(Progress{Ready: true}); err != nil {
		return fmt.Errorf("%w: %w", ErrOrphan, err)
	}
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-runCtx.Done():
			return nil
		}
		if err := w.rec.Err(); err != nil {
			return fmt.Errorf("the history: %w", err)
		}
		if err := lines.Encode(w.progress()); err != nil {
			return fmt.Errorf("%w: %w", ErrOrphan, err)
		}
	}
}

func (w *worker) progress() Progress {
	p := Progress{Grants: w.grants.Load(), Errors: w.errors.Load()}
	if text := w.lastError.Load(); text != nil {
		p.LastError = *text
	}
	now := history.Now()
	p.T = now
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.loops {
		if since := l.waiting.Load(); since != 0 {
			p.Waiting++
			p.LongestWaitMS = max(p.LongestWaitMS, time.Duration(now-since).Milliseconds())
		}
		if l.holding.Load() {
			p.Holding++
		}
	}
	return p
}

// warn prints an error for people.
func (w *worker) warn(err error) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", w.job.Process, open.Scrub(err.Error(), w.job.URL))
}
