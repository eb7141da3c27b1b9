package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
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
)

// waitLine tells on standard error who has the lock that this process waits for.
type waitLine struct {
	fresh chan holdfast.Waiting // the latest news only
}

func newWaitLine() *waitLine { return &waitLine{make(chan holdfast.Waiting, 1)} }

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

// during calls f, which waits, and shows the line meanwhile.
func (w *waitLine) during(ctx context.Context, s *session, f func()) {
	var now holdfast.Waiting
	var asked time.Time
	s.showDuring(ctx, f, func(ctx context.Context) (line, key string) {
		select {
		case n := <-w.fresh:
			if n.Holder == nil && n.Name == now.Name { // the news is of the place only
				n.Holder = now.Holder
			}
			now = n
		default:
		}
		if now.ID == "" { // it does not stand in line
			return "", ""
		}
		if time.Since(asked) >= waitLook-waitDraw/2 {
			asked = time.Now()
			look(ctx, s.Client, &now)
		}
		return waitText(&now, time.Since(asked)), waitKey(&now)
	})
}

// showDuring calls f, which waits, and from two seconds after that until f returns shows a
// line on standard error. text returns it, or "", and a key that changes when it has news.
func (s *session) showDuring(ctx context.Context, f func(), text func(context.Context) (line, key string)) {
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
	defer func() { hide(); <-hidden }()
	f()
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
// who has come before us since.
func look(ctx context.Context, c *holdfast.Client, now *holdfast.Waiting) {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	r, err := c.Inspect(ctx, now.Name)
	if err != nil {
		return // the line goes on with what is known
	}
	if now.Holder = nil; len(r.Holders) > 0 {
		now.Holder = &r.Holders[0]
	}
	if i := slices.IndexFunc(r.Waiters, func(h holdfast.Holder) bool { return h.ID == now.ID }); i >= 0 {
		now.Ahead = i
	} else if len(r.Waiters) >= driver.MaxWaiters {
		now.Ahead = max(now.Ahead, driver.MaxWaiters)
	}
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
