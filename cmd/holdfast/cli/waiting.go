package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/signs"
)

// When the line about the wait is shown.
const (
	waitSilence = 2 * time.Second  // before it first appears
	waitLook    = 2 * time.Second  // between requests to the store
	waitDraw    = time.Second      // between updates on a terminal
	waitRepeat  = 30 * time.Second // between repetitions elsewhere, if nothing changes

	hideLimit = 100 * time.Millisecond // for the last update to be written
)

// waitLine shows on standard error who holds the lock that this process waits for.
type waitLine struct {
	latest chan holdfast.Waiting // only the latest event
	queued atomic.Bool           // this process has had a place in the queue

	mu       sync.Mutex
	answered time.Time // when the store answered last
	failed   bool      // it has not answered since, although it was asked
}

func newWaitLine() *waitLine {
	return &waitLine{latest: make(chan holdfast.Waiting, 1), answered: time.Now()}
}

// asked notes the result of an exchange with the store.
func (w *waitLine) asked(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed = err != nil; err == nil {
		w.answered = time.Now()
	}
}

// renewed is an Observer's Renewed.
func (w *waitLine) renewed(_ int, _ time.Duration, err error) { w.asked(err) }

// begin notes that a wait begins. Unless the store has failed to answer before, its silence counts
// from now.
func (w *waitLine) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.failed {
		w.answered = time.Now()
	}
}

// silent returns for how long the store has not answered, and whether it was asked meanwhile.
func (w *waitLine) silent() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.answered), w.failed
}

// update is an Observer's Waiting: it never blocks.
func (w *waitLine) update(n holdfast.Waiting) {
	for {
		select {
		case w.latest <- n:
			return
		case <-w.latest:
		}
	}
}

// during calls f, which waits, and shows the line meanwhile. If the store will never grant
// anything, as a replica that takes no writes, it ends the wait and returns the reason.
func (w *waitLine) during(ctx context.Context, s *session, name string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var now holdfast.Waiting
	var asked time.Time
	var obstacle error
	var note remark
	w.begin()
	err := s.showDuring(ctx, func() error { return f(ctx) }, func(ctx context.Context) (line, key string) {
		select {
		case n := <-w.latest:
			if n.Holder == nil && n.Name == now.Name { // the event is about the place only
				n.Holder = now.Holder
			}
			now = n
			w.asked(nil)
			w.queued.Store(true)
		default:
		}
		if now.ID == "" { // no place in the queue: the store has not answered, or has only refused
			down := make(chan error, 1)
			go func() { down <- s.unavailable(ctx, name) }()
			if obstacle == nil {
				obstacle = s.obstacle(ctx)
			}
			if obstacle != nil && !w.queued.Load() { // else it may be a failover, which is short
				cancel(blocked{obstacle})
			}
			if obstacle != nil {
				return s.message(oneLine(obstacle.Error())), "refused"
			}
			if err := <-down; err != nil {
				return s.message("waiting for " + show(name) + ": " + oneLine(err.Error())), "unavailable"
			}
			old, _ := w.silent()
			return s.message(silence(old)), "silent"
		}
		if time.Since(asked) >= waitLook-waitDraw/2 {
			asked = time.Now()
			w.asked(look(ctx, s.Client, &now, &note))
		}
		line, key = waitText(&now, time.Since(asked))+note.line, waitKey(&now)+note.key
		if old, failed := w.silent(); failed && old >= waitSilence {
			line, key = line+" · "+silence(old), key+" silent"
		}
		return line, key
	})
	if isOutage(err) {
		w.asked(err) // the next wait goes on counting
	}
	if b := (blocked{}); errors.As(context.Cause(ctx), &b) {
		return b.error
	}
	return err
}

// blocked ends a wait because the store will never grant anything.
type blocked struct{ error }

// obstacle returns why the store refuses every request, or nil if waitLook passes without a reason.
func (s *session) obstacle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	if err := s.diagnose(ctx); errors.Is(err, holdfast.ErrRefused) {
		return err
	}
	return nil
}

// unavailable returns why the store cannot serve now, as it has answered; nil if it does not say.
func (s *session) unavailable(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	_, err := s.Inspect(ctx, name)
	var e *holdfast.Error
	if errors.Is(err, holdfast.ErrUnavailable) && errors.As(err, &e) && ctx.Err() == nil {
		return e.Err
	}
	return nil
}

// isOutage reports whether err is about a store that does not serve.
func isOutage(err error) bool {
	return errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain)
}

// silence reports that the store has not answered for this long.
func silence(old time.Duration) string {
	return "the store has not answered for " + rough(old)
}

// showDuring calls f, which waits. After two seconds it shows a line on standard error until f
// returns. text returns the line, or "", and a key that changes with its content.
func (s *session) showDuring(ctx context.Context, f func() error, text func(context.Context) (line, key string)) error {
	ctx, hide := context.WithCancel(ctx)
	hidden := make(chan struct{})
	go func() {
		defer close(hidden)
		showLine(ctx, os.Stderr, func(ctx context.Context) (line, key string) {
			if line, key = text(ctx); line != "" {
				s.sayPolling()
			}
			return line, key
		})
	}()
	defer func() {
		hide()
		select {
		case <-hidden:
		case <-time.After(hideLimit): // nobody reads the output; do not delay the caller
		}
	}()
	return f()
}

func showLine(ctx context.Context, out *os.File, text func(context.Context) (line, key string)) {
	columns := width(out) // 0: not a terminal
	begin := time.NewTimer(waitSilence)
	defer begin.Stop()
	select {
	case <-begin.C:
	case <-ctx.Done():
		return
	}
	every := waitLook
	if columns > 0 {
		every = waitDraw
		defer fmt.Fprint(out, "\r\x1b[K")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var printed string
	var printedAt time.Time
	for {
		line, key := text(ctx)
		switch {
		case line == "" || ctx.Err() != nil:
		case columns > 0:
			columns = max(width(out), 1)
			fmt.Fprint(out, "\r", cut(line, columns-1), "\x1b[K")
		case key != printed || time.Since(printedAt) >= waitRepeat:
			fmt.Fprintln(out, line)
			printed, printedAt = key, time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// remark is the end of the line, and of its key.
type remark struct{ line, key string }

// look asks the store for what events do not report in time: the holder's renewals, and how many
// requests are ahead. note says that the wait needs a higher limit, or what nobody holds the lock for.
// Without an answer both stay as they are, and also if the request has been granted: the wait is about
// to end.
func look(ctx context.Context, c *holdfast.Client, now *holdfast.Waiting, note *remark) error {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	r, err := c.Inspect(ctx, now.Name)
	own := func(h holdfast.Holder) bool { return h.ID == now.ID }
	if err != nil || slices.ContainsFunc(r.Holders, own) {
		return err
	}
	*note = remark{}
	if r.Partial = slices.DeleteFunc(r.Partial, own); len(r.Partial) > 0 {
		*note = remark{" · the quorum has too few free servers: the other servers have grants of " + signs.Partial(&r, who, rough),
			fmt.Sprint(" partial ", len(r.Partial))}
	}
	if now.Holder = nil; len(r.Holders) > 0 {
		now.Holder = &r.Holders[0]
	}
	if i := slices.IndexFunc(r.Waiters, own); i >= 0 {
		now.Ahead = i
		if n := r.Waiters[i].Permits; r.Kind == "semaphore" && n > r.Limit {
			text := " · " + permitsText(&r, n)
			*note = remark{text, text}
		}
	} else if len(r.Waiters) >= driver.MaxWaiters {
		now.Ahead = max(now.Ahead, driver.MaxWaiters)
	}
	return nil
}

// permitsText says why n permits of the semaphore are not granted.
func permitsText(r *holdfast.Record, n int) string {
	if n > r.Limit {
		return fmt.Sprintf("permits asked for: %d, the limit is %d", n, r.Limit)
	}
	return fmt.Sprintf("permits asked for: %d, in use: %d of %d", n, used(r), r.Limit)
}

// waitKey changes with the content of the line, times excepted.
func waitKey(w *holdfast.Waiting) string {
	if w.Holder == nil {
		return fmt.Sprint(w.Name, " ", w.Ahead)
	}
	return fmt.Sprint(w.Name, " ", w.Ahead, " ", w.Holder.ID, " ", w.Holder.Token, " ", w.Holder.Kept)
}

// waitText returns the line; old is the age of w.
func waitText(w *holdfast.Waiting, old time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "waiting for %s: %d ahead", show(w.Name), w.Ahead)
	if w.Holder != nil {
		b.WriteString(" · " + describe(since(w.Holder, old)))
	}
	return b.String()
}
