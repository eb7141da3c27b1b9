package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// LogOptions adjusts Log. The zero value, or nil, is ready to use.
type LogOptions struct {
	// SlowWait and SlowHold: a wait, or a lease, that took at least this long is logged at the level
	// Info instead of Debug. Default: 1 s and 1 min. A negative time means never.
	SlowWait, SlowHold time.Duration

	// MinLeft: a renewal that found less than this left of a lease is a warning. Default: never.
	// Two thirds of the TTL, less the client's margin, are usual.
	MinLeft time.Duration

	// Each of the messages, at each level, is logged at most Burst times in each Interval. The first
	// line after that has the number of those left out, as "left_out". Default: 20 in 10 s.
	Burst    int
	Interval time.Duration
}

// Log returns an Observer that logs the events of clients:
//
//	level   events
//	Warn    a lease was lost, a renewal failed or came late, a call failed or was refused,
//	        a release failed, a lock was broken
//	Info    a call timed out or was canceled, a wait or a lease was slow, a lease was handed off
//	Debug   a lock was granted, released, or not free
//
// The keys are lock, store, op, mode, token, waited, held, lease_left, holder, reason, err. Lines
// about a call are logged with its context, so a handler can add what the context carries.
//
// The logger's handler runs in the goroutine that called Lock or Release; a slow one delays it. Log
// repeats the warnings about lost leases of Config.Logger, which also tells when an outage ends.
func Log(logger *slog.Logger, opt *LogOptions) *holdfast.Observer {
	g := &log{logger: logger, lines: map[line]*window{}}
	if opt != nil {
		g.opt = *opt
	}
	for d, standard := range map[*time.Duration]time.Duration{
		&g.opt.SlowWait: time.Second, &g.opt.SlowHold: time.Minute, &g.opt.Interval: 10 * time.Second,
	} {
		if *d == 0 {
			*d = standard
		}
	}
	if g.opt.Burst <= 0 {
		g.opt.Burst = 20
	}
	return &holdfast.Observer{WaitEnded: g.waitEnded, LeaseEnded: g.leaseEnded, RenewalEnded: g.renewalEnded,
		Revoked: g.revoked, BreakEnded: g.breakEnded}
}

// log is the Observer of Log.
type log struct {
	logger *slog.Logger
	opt    LogOptions
	mu     sync.Mutex
	lines  map[line]*window
}

// line is what the limits count: the texts are few, whatever the names of locks are.
type line struct {
	level slog.Level
	text  string
}

// window counts the lines of an interval.
type window struct {
	began   time.Time
	logged  int
	leftOut int
}

// allow reports whether one more line may be logged now, and how many were left out before it.
func (g *log) allow(l line) (leftOut int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.lines[l]
	if w == nil {
		w = &window{}
		g.lines[l] = w
	}
	if now := time.Now(); now.Sub(w.began) >= g.opt.Interval {
		w.began, w.logged = now, 0
	}
	if w.logged >= g.opt.Burst {
		w.leftOut++
		return 0, false
	}
	w.logged++
	leftOut, w.leftOut = w.leftOut, 0
	return leftOut, true
}

func (g *log) log(ctx context.Context, level slog.Level, text string, attrs ...slog.Attr) {
	if !g.logger.Enabled(ctx, level) {
		return
	}
	leftOut, ok := g.allow(line{level, text})
	if !ok {
		return
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", leftOut))
	}
	g.logger.LogAttrs(ctx, level, text, attrs...)
}

// slow returns Info for what took at least limit, else Debug.
func slow(took, limit time.Duration) slog.Level {
	if limit >= 0 && took >= limit {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (g *log) waitEnded(ctx context.Context, w holdfast.WaitEnd) {
	level, text := slog.LevelWarn, "holdfast: a call for a lock failed"
	switch w.Outcome {
	case holdfast.OutcomeGranted:
		level, text = slow(w.Waited, g.opt.SlowWait), "holdfast: lock granted"
	case holdfast.OutcomeHeld:
		level, text = slog.LevelDebug, "holdfast: lock not free"
	case holdfast.OutcomeTimeout, holdfast.OutcomeCanceled:
		level, text = slog.LevelInfo, "holdfast: a call for a lock gave up"
	case holdfast.OutcomeRefused:
		text = "holdfast: a call for a lock was refused"
	}
	if !g.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("lock", w.Name), slog.String("store", w.Store), slog.String("op", w.Op),
		slog.String("mode", string(w.Mode)), slog.Duration("waited", w.Waited)}
	if w.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", w.Token))
	}
	if !w.Queued.IsZero() {
		attrs = append(attrs, slog.Int("ahead", w.Ahead))
	}
	if w.Holder != nil {
		attrs = append(attrs, slog.String("holder", w.Holder.String()))
	}
	if w.Err != nil {
		attrs = append(attrs, slog.Any("err", w.Err))
	}
	g.log(ctx, level, text, attrs...)
}

func (g *log) leaseEnded(e holdfast.LeaseEnd) {
	level, text := slow(e.Held, g.opt.SlowHold), "holdfast: lock released"
	switch {
	case e.Lost():
		level, text = slog.LevelWarn, "holdfast: lease lost"
	case e.Reason == holdfast.ReasonHandedOff:
		level, text = slog.LevelInfo, "holdfast: lease handed off"
	case e.Err != nil:
		level, text = slog.LevelWarn, "holdfast: a release failed"
	}
	attrs := []slog.Attr{slog.String("lock", e.Name), slog.String("store", e.Store), slog.String("op", e.Op),
		slog.String("mode", string(e.Mode)), slog.Uint64("token", e.Token), slog.Duration("held", e.Held)}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	g.log(context.Background(), level, text, attrs...)
}

func (g *log) renewalEnded(r holdfast.RenewalEnd) {
	attrs := []slog.Attr{slog.String("store", r.Store), slog.Int("number", r.Number), slog.Duration("took", r.Took)}
	switch {
	case r.Err != nil:
		g.log(context.Background(), slog.LevelWarn, "holdfast: a renewal failed", append(attrs, slog.Any("err", r.Err))...)
	case r.Leases > 0 && r.Left < g.opt.MinLeft:
		g.log(context.Background(), slog.LevelWarn, "holdfast: a lease was renewed late",
			append(attrs, slog.Duration("lease_left", r.Left))...)
	}
}

func (g *log) revoked(name string, token uint64, n holdfast.Notice) {
	g.log(context.Background(), slog.LevelInfo, "holdfast: the holder is asked to release a lock",
		slog.String("lock", name), slog.Uint64("token", token), slog.String("by", n.String()))
}

func (g *log) breakEnded(b holdfast.BreakEnd) {
	attrs := []slog.Attr{slog.String("lock", b.Name), slog.String("store", b.Store), slog.Uint64("token", b.Token)}
	text := "holdfast: a lock was broken"
	if b.Err != nil {
		text = "holdfast: a break of a lock failed"
		attrs = append(attrs, slog.Any("err", b.Err))
	}
	g.log(context.Background(), slog.LevelWarn, text, attrs...)
}
