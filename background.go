package holdfast

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// workCount counts the calls and goroutines that Close waits for. It costs a call two atomic
// additions.
type workCount struct {
	n    atomic.Int64  // calls under way, plus workClosed once it is closed
	idle chan struct{} // closed when the count is closed and no call is under way
	once sync.Once
}

const workClosed = 1 << 62

// tryAdd counts a call, unless the count is closed.
func (w *workCount) tryAdd() bool {
	if w.n.Add(1) > workClosed {
		w.done()
		return false
	}
	return true
}

// add counts a call whatever the state: for work inside a counted call, and for work that does no
// harm after Close.
func (w *workCount) add() { w.n.Add(1) }

func (w *workCount) done() {
	if w.n.Add(-1) == workClosed {
		w.once.Do(func() { close(w.idle) })
	}
}

func (w *workCount) close() {
	if w.n.Add(workClosed) == workClosed {
		w.once.Do(func() { close(w.idle) })
	}
}

// A task is an exchange that has to reach the store although no caller waits for its answer: the
// end of a request or of a grant. It is repeated until the store has answered, or until the request
// or grant has expired there, a TTL after its last renewal.
//
// A task that was answered is repeated if an exchange about the same request was not answered. Such
// an exchange may still be under way on another connection, and may reach the store after the task.
// Only the connection's own limits bound its arrival. The last repeat comes when every exchange
// that was sent before the task has reached its time limit. A request that arrives later still
// occupies the name for a TTL, but nobody relies on its grant.
type task struct {
	name     string // of the lock
	do       func(context.Context) error
	repeats  []time.Duration // pauses before the repeats of a task that was answered
	deadline time.Time
	pause    backoff.Pause
	answered chan struct{} // closed at the first answer, or when the task ends without one
	then     func()        // called then, without Client.mu; nil: nothing
	once     sync.Once
	detached bool // Close does not wait for it
}

// taskQueue runs tasks with a limited number of workers: while a store is silent, the client must
// not collect a goroutine for each lock that was given up.
//
// A store may be silent about one name only, for example while somebody locks its row in a
// database. So the names take turns, and a name has several workers only while half of all are
// free.
type taskQueue struct {
	mu      sync.Mutex
	names   map[string]*nameTasks // those with a task that is due or under way
	ready   list.List             // of *nameTasks: those with a task that is due
	workers int
	n       int // all tasks, including those that wait for their time
}

// nameTasks are the tasks of one name.
type nameTasks struct {
	name    string
	due     []*task
	running int
	element *list.Element // in ready
}

const (
	maxWorkers = 64
	maxTasks   = 1 << 16
)

// startTask runs do in the background. unanswered says that an earlier exchange about the same
// request was not answered, and may still reach the store.
func (c *Client) startTask(name string, unanswered bool, do func(context.Context) error) *task {
	t := c.newTask(name, unanswered, do)
	if !c.tryTask(t) {
		c.logCalls.countDropped()
		t.signalAnswered()
	}
	return t
}

func (c *Client) newTask(name string, unanswered bool, do func(context.Context) error) *task {
	t := &task{name: name, do: do, deadline: time.Now().Add(c.TTL()),
		pause: backoff.Pause{First: firstPause, Most: time.Second}, answered: make(chan struct{})}
	if unanswered {
		t.repeats = []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, c.limit()}
	}
	return t
}

// tryTask runs t in the background, unless there are as many tasks as a client may have.
func (c *Client) tryTask(t *task) bool {
	c.tasks.mu.Lock()
	full := c.tasks.n >= maxTasks
	if !full {
		c.tasks.n++
	}
	c.tasks.mu.Unlock()
	if full {
		return false
	}
	c.work.add()
	c.queueTask(t)
	return true
}

// cancelInBackground cancels a request, and ends the grant that it may have got.
func (c *Client) cancelInBackground(s *session, name, id string, unanswered bool) *task {
	return c.startTask(name, unanswered, func(ctx context.Context) error { return s.Cancel(ctx, name, id) })
}

// releaseInBackground releases at the store, repeatedly, until the store has answered or the lease
// has expired there. It then cancels the request, as long as an exchange about that may still arrive.
func (l *Lease) releaseInBackground() *task {
	return l.c.startTask(l.req.Name, l.unanswered, l.releaser())
}

// releaser is what the task of releaseInBackground does.
func (l *Lease) releaser() func(context.Context) error {
	released := false
	return func(ctx context.Context) error {
		if released {
			return l.session.Cancel(ctx, l.req.Name, l.req.ID)
		}
		sent := l.c.coarseNow()
		err := l.releaseOnce(ctx)
		if err == nil {
			l.recordRelease(sent)
		}
		released = err == nil || driver.IsOver(err)
		return err
	}
}

// queueTask runs t as soon as a worker is free.
func (c *Client) queueTask(t *task) {
	q := &c.tasks
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(t)
	if q.workers >= maxWorkers {
		return
	}
	q.workers++
	if t := q.next(); t != nil {
		go func() {
			for t != nil {
				c.runTask(t)
				t = q.after(t)
			}
		}()
	}
}

func (q *taskQueue) add(t *task) {
	n := q.names[t.name]
	if n == nil {
		if q.names == nil {
			q.names = map[string]*nameTasks{}
		}
		n = &nameTasks{name: t.name}
		q.names[t.name] = n
	}
	if n.due = append(n.due, t); n.element == nil {
		n.element = q.ready.PushBack(n)
	}
}

// after returns the next task for a worker that has run t.
func (q *taskQueue) after(t *task) *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.names[t.name]
	if n.running--; n.running == 0 && len(n.due) == 0 {
		delete(q.names, t.name)
	}
	return q.next()
}

// next returns a task for a worker, or nil if the worker is no longer needed. At most as many names
// as there are workers have a task under way, so the search is short.
func (q *taskQueue) next() *task {
	for element := q.ready.Front(); element != nil; element = element.Next() {
		n := element.Value.(*nameTasks)
		if n.running > 0 && q.workers > maxWorkers/2 {
			continue
		}
		t := n.due[0]
		n.due[0], n.due = nil, n.due[1:]
		n.running++
		if q.ready.MoveToBack(element); len(n.due) == 0 {
			q.ready.Remove(element)
			n.due, n.element = nil, nil
		}
		return t
	}
	q.workers--
	return nil
}

// runTask sends t once and decides whether, and when, to send it again.
func (c *Client) runTask(t *task) {
	if c.workCtx.Err() != nil {
		c.finishTask(t)
		return
	}
	ctx, cancel := context.WithTimeout(c.workCtx, c.limit())
	err := t.do(ctx)
	cancel()
	pause := time.Duration(0)
	var early *tooEarly
	switch {
	case errors.As(err, &early):
		t.signalAnswered()
		pause = min(max(early.left, t.pause.Next()), c.TTL())
		t.deadline = time.Now().Add(pause + c.TTL())
		t.detach(c) // Close releases the grant
	case err == nil || final(err) && !errors.Is(err, ErrRefused): // a store that refuses now may accept later
		t.signalAnswered()
		if len(t.repeats) == 0 {
			c.finishTask(t)
			return
		}
		pause, t.repeats = t.repeats[0], t.repeats[1:]
		if len(t.repeats) == 0 { // Close ends the session before such a late repeat
			t.detach(c)
		}
	case c.workCtx.Err() != nil || time.Now().After(t.deadline):
		c.finishTask(t)
		return
	default:
		if errors.Is(err, ErrRefused) {
			t.signalAnswered()
		}
		pause = t.pause.Next()
	}
	time.AfterFunc(pause, func() { c.queueTask(t) })
}

// tooEarly is the answer of a store that refuses until a minimum hold is over. A task that gets it asks
// again then, and at least every TTL. left is a guess: the store counts on its own clock.
type tooEarly struct {
	error
	left time.Duration
}

func (e *tooEarly) Unwrap() error { return e.error }

// detach lets Close no longer wait for t.
func (t *task) detach(c *Client) {
	if !t.detached {
		t.detached = true
		c.work.done()
	}
}

func (t *task) signalAnswered() {
	t.once.Do(func() {
		close(t.answered)
		if t.then != nil {
			t.then()
		}
	})
}

func (c *Client) finishTask(t *task) {
	t.signalAnswered()
	c.tasks.mu.Lock()
	c.tasks.n--
	c.tasks.mu.Unlock()
	if !t.detached {
		c.work.done()
	}
}

// awaitBriefly waits for the first answer, at most 20 ms.
func (t *task) awaitBriefly() { awaitBriefly(t.answered) }

// awaitBriefly waits until done is closed, at most 20 ms.
func awaitBriefly(done <-chan struct{}) {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// cancelRequest cancels l's request, and ends the grant that it may have got. It waits at most 20
// ms for an answer; the task goes on in the background.
func (l *Lease) cancelRequest() {
	l.abandon(l.unanswered).awaitBriefly()
}

// cancelPushed cancels l's request after the store reported that a grant, known only from a push,
// does not exist. The push may have been forged. The request is then still in the queue: the store
// would hand the lock to it, and nobody would use that grant for a TTL.
func (l *Lease) cancelPushed() { l.c.cancelInBackground(l.session, l.req.Name, l.req.ID, false) }

// cancelLate cancels l's request, whose grant has ended, if an exchange about it may still arrive.
func (l *Lease) cancelLate() {
	if l.unanswered {
		l.c.cancelInBackground(l.session, l.req.Name, l.req.ID, true)
	}
}

// leftOpen reports whether the store may have done, or may still do, what failed with err. A store that has done
// it without a confirmation by its replicas may say why: then err is both ErrUncertain and ErrRefused, for instance.
func leftOpen(err error) bool {
	return errors.Is(err, ErrUncertain) || err != nil && !final(err) && !errors.Is(err, ErrUnavailable)
}

// holdID names l's grant to the store.
func (l *Lease) holdID() driver.Hold {
	return driver.Hold{Name: l.req.Name, ID: l.req.ID, Token: l.grantToken}
}

// firstPause is the pause after the first failed try.
const firstPause = 10 * time.Millisecond
