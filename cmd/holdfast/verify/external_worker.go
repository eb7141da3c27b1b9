package verify

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/open"
)

// externalWorker drives a worker process of the user's, and records what it answers. The
// coordinator reads the clock before it sends an order and after it has read an answer. So a slow
// machine, or a slow worker, only widens the time in which the lock may have acted.
type externalWorker struct {
	r   *run
	p   *process
	rec *history.Recorder
	// From here on nothing more is recorded of it.
	life context.Context
	die  context.CancelFunc
	// From here on there are no new attempts.
	work   context.Context
	finish context.CancelFunc
	loops  sync.WaitGroup

	failed sync.Once

	hello  hello // valid once the process is ready
	nextID atomic.Int64
	grants atomic.Int64
	errors atomic.Int64
	all    []*externalLoop

	mu   sync.Mutex // also of writes to the worker
	open map[int64]*externalAttempt
}

// silenceLimit is how long a worker may take to answer an order, besides its wait and six TTLs. A
// client library may try for a while, and no fault lasts longer than three TTLs.
const silenceLimit = 30 * time.Second

// maxWords bounds a line of a worker.
const maxWords = 64 << 10

// errSilent ends an order whose worker has ended or will be killed.
var errSilent = errors.New("the worker has ended")

// newExternalWorker prepares a worker. The process is set before it starts.
func (r *run) newExternalWorker(name string) (*externalWorker, error) {
	rec, err := history.Create(r.path(name))
	if err != nil {
		return nil, err
	}
	rec.Process = name
	rec.Record(history.Event{Kind: history.Run, Target: history.Observed})
	w := &externalWorker{r: r, rec: rec, open: map[int64]*externalAttempt{}}
	w.life, w.die = context.WithCancel(context.Background())
	w.work, w.finish = context.WithCancel(w.life)
	return w, nil
}

// listen reads what the worker writes, until the worker has ended and its attempts are over.
func (w *externalWorker) listen(out io.Reader, onProgress func()) {
	late := time.AfterFunc(launchLimit, func() { w.fail("it has not written its first line after %v", launchLimit) })
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxWords)
	var err error
	for first := true; err == nil && lines.Scan(); first = false {
		at := history.Now()
		if !first {
			err = w.heard(lines.Bytes(), at)
		} else if w.hello, err = parseHello(lines.Bytes()); err == nil {
			late.Stop()
			if !w.hello.Queue {
				w.rec.Record(history.Event{Kind: history.Run, Target: history.Unordered})
			}
			w.begin(onProgress)
		}
		if err != nil {
			w.fail("%v: %.200q", err, lines.Text())
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		w.fail("%v: it is longer than %d bytes", errWords, maxWords)
	}
	late.Stop()
	w.die()
	w.loops.Wait()
	w.p.set(w.progress())
	if err := w.rec.Close(); err != nil {
		w.r.note("the history of worker process %s: %v", w.p.name, err)
	}
}

// fail kills a worker that does not keep to the protocol. It is replaced, and the report says why.
func (w *externalWorker) fail(format string, args ...any) {
	w.failed.Do(func() {
		_, _ = fmt.Fprintf(&w.p.stderr, "\n"+format+"\n", args...)
		w.die()
		w.p.signalKill()
	})
}

// warmUps is the number of attempts of a worker that no history has. They connect, and load classes.
const warmUps = 3

// warmUp has the worker take a lock that nobody else takes. Only the protocol is checked.
func (w *externalWorker) warmUp() error {
	for range warmUps {
		t := w.attempt("warm-up/" + w.p.name)
		defer w.forget(t)
		a, err := w.ask(t, externalOrder{Do: "lock", Name: t.name, TTLMS: w.r.ttl.Milliseconds()})
		for _, do := range []string{"held", "unlock"} {
			if err == nil && a.ok() {
				_, err = w.ask(t, externalOrder{Do: do})
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// attempt returns a new attempt, whose answers can be read until forget.
func (w *externalWorker) attempt(name string) *externalAttempt {
	t := &externalAttempt{w: w, number: w.nextID.Add(1), name: w.r.prefix + name, answers: make(chan *reply, 1)}
	t.id = w.p.name + "-" + strconv.FormatInt(t.number, 10)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[t.number] = t
	return t
}

func (w *externalWorker) forget(t *externalAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, t.number)
}

// begin warms the worker up and starts the loops.
func (w *externalWorker) begin(onProgress func()) {
	for i := range w.r.Loops {
		seed := w.r.Seed + uint64(w.p.index)<<32 + uint64(w.p.runNumber)<<48
		l := &externalLoop{w: w, number: i, rng: rand.New(rand.NewPCG(seed, uint64(i))), ended: make(chan struct{})}
		w.all = append(w.all, l)
	}
	w.loops.Go(func() {
		if w.warmUp() != nil {
			return
		}
		w.p.set(Progress{Ready: true, T: history.Now()})
		onProgress()
		for _, l := range w.all {
			w.loops.Go(l.run)
		}
		for backoff.Sleep(w.life, reportEvery) {
			w.p.set(w.progress())
			onProgress()
		}
	})
}

func (w *externalWorker) progress() Progress {
	p := Progress{Grants: w.grants.Load(), Errors: w.errors.Load()}
	p.T = history.Now()
	for _, l := range w.all {
		if l.waiting.Load() {
			p.Waiting++
		}
		if l.holding.Load() {
			p.Holding++
		}
	}
	return p
}

// heard takes in a line of the worker, read at at.
func (w *externalWorker) heard(line []byte, at int64) error {
	a, err := parseReply(line)
	if err != nil {
		return err
	}
	a.t = at
	w.mu.Lock()
	t := w.open[*a.ID]
	w.mu.Unlock()
	switch {
	case a.unasked():
		if t != nil { // else it is over
			t.report(&a)
		}
		return nil
	case t == nil:
		return fmt.Errorf("%w: an answer for an id without an order", errWords)
	}
	return t.answered(&a)
}

// ask sends an order and waits for its answer.
func (w *externalWorker) ask(t *externalAttempt, o externalOrder) (*reply, error) {
	o.ID = t.number
	line, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	silence := silenceLimit
	if w.p.started() { // a test with a short limit needs workers that get ready on a busy machine, too
		silence = cmp.Or(w.r.silence, silenceLimit)
	}
	limit := silence + time.Duration(o.WaitMS)*time.Millisecond + 6*w.r.ttl
	silent := time.AfterFunc(limit, func() { w.fail("it has not answered the order %s for %v", line, limit) })
	defer silent.Stop()
	if !t.expect(o.Do) {
		return nil, errSilent
	}
	w.mu.Lock()
	_, err = w.p.in.Write(append(line, '\n'))
	w.mu.Unlock()
	if err != nil {
		return nil, errSilent
	}
	select {
	case a := <-t.answers:
		if a.Error != "" {
			w.errors.Add(1)
		}
		return a, nil
	case <-w.life.Done():
		return nil, errSilent
	}
}

// endInOrder ends the attempts and the process.
func (w *externalWorker) endInOrder() {
	w.finish()
	for _, l := range w.all {
		select {
		case <-l.ended:
		case <-w.life.Done():
			return
		}
	}
	w.p.expectEnd()
	w.rec.Record(history.Event{Kind: history.Closed, Client: ""})
	_ = w.p.in.Close()
	select {
	case <-w.p.ended:
	case <-time.After(endExternal):
		w.p.kill()
	}
}

// endExternal is how long a worker may run on after the end of its input.
const endExternal = 5 * time.Second

// text returns the text of a worker without the password of the store.
func (w *externalWorker) text(s string) string { return open.Scrub(s, w.r.URL) }
