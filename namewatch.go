package holdfast

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

const (
	// gather is the least time between two looks at the store. Hints that arrive meanwhile are
	// gathered.
	gather = 20 * time.Millisecond

	// maxHints is how many names are remembered until the next look. If there are more, it is at
	// all names.
	maxHints = 1000
)

// Watch yields the changes of names that begin with prefix, until ctx ends or the client is closed.
// It takes no lock. The first events are the names in use, with Initial set; then comes one of type
// EventReady.
//
// An event is the difference between two readings of a record, so it says what the store has on
// record. Changes between two readings are one event. A grant that was given and ended between them
// is not reported; the fencing tokens show that. Renewals are no changes. There is no order among
// the events of different names.
//
// Stores that can report changes make Watch look at once: memory, ZooKeeper from 3.6 and Redis.
// SQLite is looked at within 0.02 s of a change, MySQL and PostgreSQL within 0.2 s. Others are
// looked at every third of the TTL, and so are locks in Redis that Redisson shares. Each is looked
// at twice per TTL, and when a lease is due to expire. Looks are at least 20 ms apart, and pause
// while the caller handles an event.
//
// An error is yielded once for each outage of the store. Watch goes on, and reports what has changed
// meanwhile as one difference. The end of the client is an error that is ErrClosed, and the last. So is
// ErrInvalid, for a prefix that no name can have.
func (c *Client) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return c.watchNames(ctx, "watch", prefix, false)
}

// watchNames is Watch. exact: of the name that is prefix, and no other.
func (c *Client) watchNames(ctx context.Context, op, prefix string, exact bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.usable()
		switch {
		case err != nil:
		case exact:
			err = driver.CheckName(prefix)
		default:
			err = driver.CheckPrefix(prefix)
		}
		if err == nil && !c.isOpen() {
			err = ErrClosed
		}
		if err != nil {
			yield(Event{}, &Error{Op: op, Name: prefix, Err: err})
			return
		}
		w := &nameWatch{c: c, op: op, prefix: prefix, exact: exact, yield: yield, known: map[string]*reading{},
			lookedAt: never, expiryAt: forever}
		w.hints.names, w.hints.wake = map[string]struct{}{}, make(chan struct{}, 1)
		w.run(ctx)
	}
}

// nameWatch is one Watch. Its fields belong to the goroutine of the caller, except hints.
//
// A hint is never an event: it says which record to read. What was read is compared with the
// reading before. So a hint that is late, repeated, forged or lost changes only when Watch looks.
type nameWatch struct {
	c      *Client
	op     string
	prefix string
	exact  bool
	yield  func(Event, error) bool // call emit
	known  map[string]*reading     // of names in use
	hints  hints

	ready  bool          // the names in use at the beginning have been reported
	outage bool          // the last look failed
	spent  time.Duration // in the caller, by the look under way

	// Times are those of Client.coarseNow.
	lookedAt time.Duration // when the last look at all names began; never: look now
	expiryAt time.Duration // when the first lease may expire
	notYet   time.Duration // the next look is not before
	allLater time.Duration // the next look at all names is not before
}

const never = -forever

// errStop ends a look whose caller wants no more events.
var errStop = errors.New("stop")

func (w *nameWatch) run(ctx context.Context) {
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.c.openCtx, cancel)
	ended := w.listen(ctx)
	defer func() {
		stop()
		cancel()
		awaitBriefly(ended)
	}()
	pause := backoff.Pause{First: 5 * gather, Most: w.c.TTL() / 3}
	for w.wait(ctx) {
		err := w.look(ctx)
		switch {
		case errors.Is(err, errStop):
			return
		case ctx.Err() != nil:
		case err != nil:
			w.lookedAt, w.allLater = never, w.c.coarseNow()+pause.Next()
			w.notYet = w.allLater
			first := !w.outage
			w.outage = true
			if err = explain(caller, err); !final(err) {
				err = asRead(asOutage(err))
			}
			if first && !w.emit(Event{}, &Error{Op: w.op, Name: w.prefix, Err: err}) {
				return
			}
		default:
			w.outage = false
			pause.Reset()
		}
	}
	if caller.Err() == nil {
		w.emit(Event{}, &Error{Op: w.op, Name: w.prefix, Err: ErrClosed})
	}
}

// listen receives the hints of a store that has them, until ctx ends; then it closes ended, which a
// silent store may delay. It returns when the store would report the next change, so that none is
// missed before the first look, or when the store does not answer soon.
func (w *nameWatch) listen(ctx context.Context) (ended <-chan struct{}) {
	done := make(chan struct{})
	if !w.c.work.tryAdd() {
		close(done)
		return done
	}
	stands := make(chan struct{})
	answered := sync.OnceFunc(func() { close(stands) })
	go func() {
		defer w.c.work.done()
		defer close(done)
		pause := backoff.Pause{First: 5 * gather, Most: w.c.TTL()}
		for {
			began := time.Now()
			err := driver.Watch(ctx, w.c.backend, w.prefix, func(name string) {
				w.hint(name)
				answered()
			})
			w.hints.lost()
			answered()
			if time.Since(began) > pause.Most {
				pause.Reset()
			}
			if driver.IsFinal(err) || !pause.Wait(ctx) {
				return
			}
		}
	}()
	timer := time.NewTimer(w.c.silentAfter())
	defer timer.Stop()
	select {
	case <-stands:
	case <-timer.C:
	case <-ctx.Done():
	}
	return done
}

// hint notes that the record of a name may have changed; "": of any name. Anybody may have sent it.
func (w *nameWatch) hint(name string) {
	switch {
	case name == "":
	case w.exact && name != w.prefix, !strings.HasPrefix(name, w.prefix), driver.CheckName(name) != nil:
		return
	}
	w.hints.add(name)
}

// wait returns when it is time to look, or false when ctx has ended.
func (w *nameWatch) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		left := w.next() - w.c.coarseNow()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-w.hints.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// next returns when to look.
func (w *nameWatch) next() time.Duration {
	all, some, pushed := w.hints.state()
	at := min(w.nextAll(all, pushed), max(w.expiryAt, w.notYet))
	if some {
		at = min(at, w.notYet)
	}
	return at
}

// nextAll returns when to look at all names.
func (w *nameWatch) nextAll(all, pushed bool) time.Duration {
	// A renewed lease has at least two thirds of the TTL left. A look after half of it comes before
	// any of them is due, so that they are not read one by one.
	every := w.c.TTL() / 2
	if !pushed {
		every = w.c.TTL() / 3
	}
	if all {
		every = 0
	}
	return max(w.lookedAt+every, w.allLater)
}

// look reads the records that are due, and yields what has changed.
func (w *nameWatch) look(ctx context.Context) error {
	began := w.c.coarseNow()
	w.spent = 0
	hinted, _, pushed := w.hints.state()
	all := w.nextAll(hinted, pushed) <= began
	names := w.hints.take(all)
	if w.expiryAt <= began {
		names = w.withExpired(names, began)
	}
	var err error
	switch {
	case !all:
		err = w.readNames(ctx, names)
	case w.exact:
		err = w.readNames(ctx, []string{w.prefix})
	default:
		err = w.readAll(ctx)
	}
	now := w.c.coarseNow()
	w.notYet = now + gather
	if !all || err != nil {
		return err
	}
	// However often the store says that anything may have changed, a long list of names is read a
	// fifth of the time at most.
	w.lookedAt, w.allLater = began, now+max(gather, 4*(now-began-w.spent))
	if !w.ready {
		w.ready = true
		if !w.emit(Event{Type: EventReady, Initial: true}, nil) {
			return errStop
		}
	}
	return nil
}

// emit yields an event, or an error.
func (w *nameWatch) emit(e Event, err error) bool {
	began := w.c.coarseNow()
	defer func() { w.spent += w.c.coarseNow() - began }()
	return w.yield(e, err)
}

// withExpired adds the names in which a lease may have expired, and finds the time of the next one.
func (w *nameWatch) withExpired(names []string, now time.Duration) []string {
	w.expiryAt = forever
	for name, r := range w.known {
		if r.expires <= now {
			names = append(names, name)
		} else {
			w.expiryAt = min(w.expiryAt, r.expires)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hints are the names to look at.
type hints struct {
	mu     sync.Mutex
	names  map[string]struct{}
	all    bool
	pushed bool          // the store reports changes
	wake   chan struct{} // buffer of 1
}

func (h *hints) add(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushed = true
	if name == "" || len(h.names) >= maxHints {
		h.all = true
	} else {
		h.names[name] = struct{}{}
	}
	notify(h.wake)
}

// lost notes that the store does not report changes any more, and may have missed some.
func (h *hints) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushed, h.all = false, true
	notify(h.wake)
}

// take returns the names to look at, and forgets them. all: the look is at all names.
func (h *hints) take(all bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.Sorted(maps.Keys(h.names))
	clear(h.names)
	if all {
		h.all = false
	}
	return names
}

// state returns whether to look at all names, whether at some, and whether the store reports changes.
func (h *hints) state() (all, some, pushed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all, len(h.names) > 0, h.pushed
}
