package verify

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// externalLoop takes one lock after the other through an external worker.
type externalLoop struct {
	w      *externalWorker
	number int
	rng    *rand.Rand
	pause  time.Duration // after a failed call
	ended  chan struct{}

	waiting, holding atomic.Bool
}

// externalAttempt is one attempt, from its lock order to the answer to its unlock order.
type externalAttempt struct {
	w       *externalWorker
	number  int64
	id      string
	name    string
	call    int64
	answers chan *reply
	valid   int64 // until when the grant is known to have lasted

	mu     sync.Mutex
	order  string // the order without an answer
	queued int64  // when its place in the queue was reported
	lost   int64  // when its loss was reported
}

// expect notes that an order will be answered. It reports false if the last one has not been.
func (t *externalAttempt) expect(do string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.order != "" {
		return false
	}
	t.order = do
	return true
}

// report takes in an unasked line.
func (t *externalAttempt) report(a *reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case a.Queued && t.queued == 0:
		t.queued = a.t
	case a.Lost && t.lost == 0:
		t.lost = a.t
	}
}

func (t *externalAttempt) answered(a *reply) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.w.hello
	switch {
	case t.order == "":
		return fmt.Errorf("%w: two answers to an order", errWords)
	case t.order != "lock" && (a.Token != 0 || a.Held):
		return fmt.Errorf("%w: token and held belong to the answer to lock", errWords)
	case t.order == "lock" && a.ok() && (a.Token != 0) != h.Tokens:
		return fmt.Errorf("%w: tokens was %v in the first line", errWords, h.Tokens)
	}
	t.order = ""
	t.answers <- a
	return nil
}

// record records an event of the attempt, unless the worker's end has been recorded.
func (t *externalAttempt) record(e history.Event) int64 {
	e.ID, e.Name = t.id, t.name
	if t.w.life.Err() != nil {
		return history.Now()
	}
	return t.w.rec.Record(e)
}

// run takes locks until the worker ends or finishes.
func (l *externalLoop) run() {
	defer close(l.ended)
	for l.w.work.Err() == nil {
		if l.once() != nil {
			return
		}
		pause := max(l.pause, l.w.r.Pause)
		if !l.w.hello.Wait {
			pause = max(pause, 10*time.Millisecond)
		}
		if pause > 0 {
			backoff.Sleep(l.w.work, pause/2+time.Duration(l.rng.Int64N(int64(pause))))
		}
	}
}

// holdsLong: see loop.holdsLong.
func (l *externalLoop) holdsLong() bool { return l.number%8 == 0 && l.w.r.Loops > 1 }

// wait draws for how long the next call waits: mostly long, sometimes hardly or not at all.
func (l *externalLoop) wait() time.Duration {
	switch d := l.rng.IntN(20); {
	case !l.w.hello.Wait || d < 2:
		return 0
	case d == 2:
		return time.Millisecond * time.Duration(1+l.rng.IntN(20))
	}
	return max(10*time.Second, 5*l.w.r.ttl)
}

// once is one attempt. Its error means that the worker has ended.
func (l *externalLoop) once() error {
	w := l.w
	number := strconv.Itoa(l.rng.IntN(w.r.Names))
	if l.holdsLong() {
		number = "slow"
	}
	t := w.attempt("mutex/" + number)
	defer w.forget(t)
	wait := l.wait()
	l.waiting.Store(true)
	t.call = t.record(history.Event{Kind: history.Acquire, Wait: wait > 0, TTL: w.r.ttl})
	a, err := w.ask(t, externalOrder{Do: "lock", Name: t.name, TTLMS: w.r.ttl.Milliseconds(), WaitMS: wait.Milliseconds()})
	if err != nil {
		return err
	}
	if a.ok() || a.Error != "" || w.hello.Wait {
		l.waiting.Store(false)
	}
	t.recordPlace(a.t)
	switch {
	case a.ok():
		t.record(history.Event{T: a.t, Kind: history.Granted, Token: a.Token})
		t.valid = a.t
		w.grants.Add(1)
		l.pause = 0
		return l.work(t, a.Token)
	case a.Held:
		t.record(history.Event{T: a.t, Kind: history.Refused, Result: history.Rejected})
	case a.Error != "":
		t.record(history.Event{T: a.t, Kind: history.Unanswered, Text: w.text(a.Error)})
		l.backOff()
	default:
		t.record(history.Event{T: a.t, Kind: history.Refused, Text: "not granted"})
		l.backOff()
	}
	return nil
}

func (l *externalLoop) backOff() {
	l.pause = min(max(2*l.pause, 10*time.Millisecond), 500*time.Millisecond)
}

// recordPlace records the place in the queue, if it cannot have expired: an answer came within a TTL
// of the call. A worker that did not run for longer may have lost its place.
func (t *externalAttempt) recordPlace(answered int64) {
	t.mu.Lock()
	queued := t.queued
	t.mu.Unlock()
	if queued != 0 && t.w.hello.Queue && answered-t.call < int64(t.w.r.ttl) {
		t.record(history.Event{T: queued, Kind: history.Queued})
	}
}

// work is the work under a grant.
func (l *externalLoop) work(t *externalAttempt, token uint64) error {
	l.holding.Store(true)
	defer l.holding.Store(false)
	w := l.w
	q := request{client: w.p.name, id: t.id, name: t.name, token: token}
	held, err := l.held(t)
	if err != nil {
		t.recordEnd()
		return err
	}
	value, begun := int64(0), false
	if token != 0 {
		value, begun = w.r.resource.step(&q)
	}
	left, step := time.Duration(0), w.r.ttl/8
	switch {
	case !held:
	case l.holdsLong():
		left = w.r.ttl/2 + time.Duration(l.rng.Int64N(int64(w.r.ttl)))
	case l.rng.IntN(2) == 0:
		left = time.Duration(l.rng.Int64N(int64(3 * time.Millisecond)))
	}
	for ; left > 0 && held && backoff.Sleep(w.work, min(left, step)); left -= step {
		if held, err = l.held(t); err != nil {
			t.recordEnd()
			return err
		}
	}
	if begun { // even if the lease is over: the resource must refuse it then
		q.write, q.value = true, value+1
		t.record(history.Event{Kind: history.Writing, Client: "", Token: token, Value: q.value})
		w.r.resource.step(&q)
	}
	l.holding.Store(false)
	t.record(history.Event{Kind: history.Release})
	a, err := w.ask(t, externalOrder{Do: "unlock"})
	if err != nil {
		return err
	}
	// A no may be the answer to a repeated request: the first one released the lock, and its reply was
	// lost. So it is not Rejected, which would mean that the lease had ended before.
	e := history.Event{T: a.t, Kind: history.Released, Result: history.Unknown, Text: w.text(a.Error)}
	switch {
	case a.ok():
		e.Result = history.Accepted
	case a.Error != "":
		l.backOff()
	}
	t.record(e)
	return nil
}

// held asks whether the lease is valid. The worker may have asked its store at any time since the
// order was sent, so the answer counts for that time. An error is no answer. A loss is recorded when
// its line had been read: that is enough for an Observed history. It is asked no more after a loss.
func (l *externalLoop) held(t *externalAttempt) (bool, error) {
	if lost := t.lostAt(); lost != 0 {
		t.record(history.Event{T: lost, Kind: history.Lost})
		return false, nil
	}
	sent := history.Now()
	a, err := l.w.ask(t, externalOrder{Do: "held"})
	switch {
	case err != nil:
		return false, err
	case a.ok():
		t.record(history.Event{T: sent, Kind: history.Held})
		t.valid = sent
	case a.Error == "":
		t.record(history.Event{T: a.t, Kind: history.Lost})
		return false, nil
	}
	return true, nil
}

// recordEnd records that the grant may have ended before the worker, unless verify has ended that. A
// program that ends by an exception releases its locks first, and some stores release the locks of a
// connection that ends.
func (t *externalAttempt) recordEnd() {
	if !t.w.p.endExpected() {
		t.w.rec.Record(history.Event{T: t.valid, Kind: history.Release, ID: t.id, Name: t.name})
	}
}

func (t *externalAttempt) lostAt() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}
