package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// How the line that says who is waited for comes and goes.
const (
	waitSilence = 2 * time.Second  // before it shows
	waitLook    = 2 * time.Second  // between questions to the store
	waitDraw    = time.Second      // between versions of it on a terminal
	waitRepeat  = 30 * time.Second // elsewhere, when nothing changes

	hideLimit = 100 * time.Millisecond // for the last version of it to be written
)

// waitLine tells on standard error who has the lock that this process waits for.
type waitLine struct {
	fresh chan holdfast.Waiting // the latest news only
	stood atomic.Bool           // this process has stood in a line
}

func newWaitLine() *waitLine { return &waitLine{fresh: make(chan holdfast.Waiting, 1)} }

// news is an Observer's Waiting: it never blocks.
func (w *waitLine) news(n holdfast.Waiting) {
	for {
		select {
		case w.fresh <- n:
			return
		case <-w.fresh:
		}
	}
}

// during calls f, which waits, and shows the line meanwhile. If the store will never grant
// anything, as a replica that takes no writes, it ends the wait and returns what is in the way.
func (w *waitLine) during(ctx context.Context, s *session, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var now holdfast.Waiting
	var asked time.Time
	var obstacle error
	silent := time.Now() // since when the store has not answered; zero: it does
	err := s.showDuring(ctx, func() error { return f(ctx) }, func(ctx context.Context) (line, key string) {
		select {
		case n := <-w.fresh:
			if n.Holder == nil && n.Name == now.Name { // the news is of the place only
				n.Holder = now.Holder
			}
			now, silent = n, time.Time{}
			w.stood.Store(true)
		default:
		}
		if now.ID == "" { // it does not stand in line: the store has not answered, or only refused
			if obstacle == nil {
				obstacle = s.obstacle(ctx)
			}
			if obstacle != nil && !w.stood.Load() { // a failover is an obstacle, too, but a short one
				cancel(blocked{obstacle})
			}
			if obstacle != nil {
				return oneLine(obstacle.Error()), "refused"
			}
			return silence(time.Since(silent)), "silent"
		}
		if time.Since(asked) >= waitLook-waitDraw/2 {
			asked = time.Now()
			if err := look(ctx, s.Client, &now); err == nil {
				silent = time.Time{}
			} else if silent.IsZero() {
				silent = asked
			}
		}
		line, key = waitText(&now, time.Since(asked)), waitKey(&now)
		if old := time.Since(silent); !silent.IsZero() && old >= waitSilence {
			line, key = line+" · "+silence(old), key+" silent"
		}
		return line, key
	})
	if b := (blocked{}); errors.As(context.Cause(ctx), &b) {
		return b.error
	}
	return err
}

// blocked is the cause of a wait that was ended because the store will never grant anything.
type blocked struct{ error }

// obstacle is why the store refuses whatever is asked of it, if that can be found out soon.
func (s *session) obstacle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	if err := s.diagnose(ctx); errors.Is(err, holdfast.ErrRefused) {
		return err
	}
	return nil
}

// silence says that the store has not answered for so long.
func silence(old time.Duration) string {
	return "the store has not answered for " + rough(old)
}

// showDuring calls f, which waits, and from two seconds after that until f returns shows a
// line on standard error. text returns it, or "", and a key that changes when it has news.
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
		case <-time.After(hideLimit): // nobody reads, or the terminal's output is stopped: what was waited for does not wait
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
	var said string
	var saidAt time.Time
	for {
		line, key := text(ctx)
		switch {
		case line == "" || ctx.Err() != nil:
		case columns > 0:
			columns = max(width(out), 1)
			fmt.Fprint(out, "\r", cut(line, columns-1), "\x1b[K")
		case key != said || time.Since(saidAt) >= waitRepeat:
			fmt.Fprintln(out, line)
			said, saidAt = key, time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look asks the store for what the news does not say in time: the holder's renewals, and
// who has come before us since. If the store does not answer, the line goes on with what is
// known.
func look(ctx context.Context, c *holdfast.Client, now *holdfast.Waiting) error {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	r, err := c.Inspect(ctx, now.Name)
	if err != nil {
		return err
	}
	if now.Holder = nil; len(r.Holders) > 0 {
		now.Holder = &r.Holders[0]
	}
	if i := slices.IndexFunc(r.Waiters, func(h holdfast.Holder) bool { return h.ID == now.ID }); i >= 0 {
		now.Ahead = i
	} else if len(r.Waiters) >= driver.MaxWaiters {
		now.Ahead = max(now.Ahead, driver.MaxWaiters)
	}
	return nil
}

// waitKey changes when the line has news, apart from the time that has passed.
func waitKey(w *holdfast.Waiting) string {
	if w.Holder == nil {
		return fmt.Sprint(w.Name, " ", w.Ahead)
	}
	return fmt.Sprint(w.Name, " ", w.Ahead, " ", w.Holder.ID, " ", w.Holder.Token, " ", w.Holder.Kept)
}

// waitText is the line, when what w says is so old.
func waitText(w *holdfast.Waiting, old time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "waiting for %s: %d ahead", show(w.Name), w.Ahead)
	if w.Holder != nil {
		h := *w.Holder
		h.Left = max(h.Left-old, 0)
		b.WriteString(" · " + describe(&h))
	}
	return b.String()
}
