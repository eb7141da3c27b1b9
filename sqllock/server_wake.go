package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// bellSleep is the longest that a lost wake-up costs, and pollFirst and pollLast are how often
// the server is asked where nobody can be woken: soon after somebody began to wait, and in
// the long run.
const (
	bellSleep = time.Second
	pollFirst = 5 * time.Millisecond
	pollLast  = 50 * time.Millisecond
)

// listen sees to it that waiters are woken, before the first of them waits.
func (b *Server) listen(ctx context.Context) error {
	select {
	case <-b.opening:
		defer func() { b.opening <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	b.mu.Lock()
	done := b.bell != nil || b.closed
	lonely := b.at.Lonely
	b.mu.Unlock()
	if done {
		return nil
	}
	// The application must not take up the pool before the connection for renewals is there.
	if err := b.kept.use(ctx, waking, func(context.Context, link) error { return nil }); err != nil {
		return err
	}
	var bell Bell
	reason := lonely
	if reason == "" {
		db := b.db
		if b.cfg.Listen != nil {
			db = b.cfg.Listen
		}
		var err error
		bell, reason, err = b.d.OpenBell(ctx, BellConfig{
			DB: db, Server: b.id, Keep: b.keep, Heard: b.heard, Look: b.look, Waiting: b.bells.pending, Sleep: bellSleep,
		})
		if err != nil {
			return b.fault(err)
		}
	}
	if bell == nil {
		bell = b.poll()
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.bell, b.reason = bell, reason
	}
	b.mu.Unlock()
	if closed {
		return bell.Close()
	}
	b.background(b.sweep)
	return nil
}

// keep runs f on the connection that is kept.
func (b *Server) keep(ctx context.Context, f func(q Querier, opened time.Time) error) error {
	return b.kept.use(ctx, waking, func(_ context.Context, l link) error { return f(b.on(l), b.kept.opened) })
}

// background runs f beside, unless b is closed; Close waits for it.
func (b *Server) background(f func()) (runs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Go(f)
	}
	return !b.closed
}

// wakeLimit is how long waking others may take: those who were not woken look by themselves.
const wakeLimit = time.Second

// wake tells other Servers, beside whatever else goes on. Close waits for it and does not end it: a
// program that releases and exits leaves nobody waiting for what is free.
func (b *Server) wake(rings []Ring) {
	b.background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wakeLimit)
		defer cancel()
		_ = b.keep(ctx, func(q Querier, opened time.Time) error { return b.d.Wake(ctx, q, opened, rings) })
	})
	runtime.Gosched() // so that they hear of it before the caller goes on and asks for the lock again
}

// expect says that somebody waits here.
func (b *Server) expect() {
	b.mu.Lock()
	bell := b.bell
	b.mu.Unlock()
	if bell != nil {
		bell.Wait()
	}
}

// heard is what another Server, or a statement, has told.
func (b *Server) heard(r Ring) {
	if r.ID == "" { // nobody knows who
		b.background(func() { _ = b.look(b.ctx) })
		return
	}
	if r.Token != 0 && !b.wanted(r.ID) && r.Name != "" {
		b.giveBack(r)
		return
	}
	b.bells.ring(r.ID, r.Token)
}

// giveBack ends what was handed to a request that was given up: who comes next must not wait for its lease to end. Whoever
// hears news may repeat them, so one at a time does it for a request.
func (b *Server) giveBack(r Ring) {
	b.mu.Lock()
	_, busy := b.returning[r.ID]
	b.returning[r.ID] = busy
	b.mu.Unlock()
	if busy {
		return
	}
	b.background(func() {
		for again := true; again; {
			ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
			_ = b.ask(ctx, r.Name, func(rec *record) error {
				if !b.wanted(r.ID) && rec.isOf(r.ID, b.id) { // else somebody has repeated what another Server was told
					rec.grants = rec.entry.Cancel(ofMicros(rec.now), r.ID)
				}
				return nil
			})
			cancel()
			b.mu.Lock()
			if again = b.returning[r.ID] && b.ctx.Err() == nil; again {
				b.returning[r.ID] = false
			} else {
				delete(b.returning, r.ID)
			}
			b.mu.Unlock()
		}
	})
}

// wanted reports whether a request waits here, or is about to, or holds what it was granted, which
// it may have learnt in another way before this news came.
func (b *Server) wanted(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.open {
		if s.knows(id) {
			return true
		}
	}
	return false
}

// look asks what has become of all that wait here, and tells them.
func (b *Server) look(ctx context.Context) error {
	pending := b.bells.pending()
	for names := range slices.Chunk(slices.Sorted(maps.Keys(pending)), rowsAtOnce) {
		n := padded(len(names))
		args := make([]any, n)
		for i := range args {
			args[i] = []byte(names[min(i, len(names)-1)])
		}
		// Without the lines, which are long, and in which nothing can be seen that matters here.
		text := b.text("SELECT name, kind, counter, token, hid, kept, expires, more, {now} FROM hf_lock WHERE name IN (" + marks(n) + ")")
		err := b.read(ctx, func(ctx context.Context, l link) error {
			return b.each(ctx, b.on(l).Often(), text, args, func(row *sql.Rows) error {
				var name []byte
				r := &record{exists: true}
				c := &r.cols
				if err := row.Scan(&name, &c.kind, &c.counter, &c.token, &c.hid, &c.kept, &c.expires, &c.more, &r.now); err != nil {
					return err
				}
				r.name = string(name)
				r.decode()
				b.show(r, pending[r.name])
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// show tells those who wait for a name what its record says.
func (b *Server) show(r *record, w Waiters) {
	e := &r.entry
	if r.damaged != nil { // they ask, and learn that
		for _, id := range slices.Concat(w.Alone, w.Group, w.Latch) {
			b.bells.remind(id, "damaged")
		}
		return
	}
	reason := "" // to ask again: nobody's lease, but time that was not known before, is in the way
	for i := range e.Holds {
		if e.Holds[i].Kept || e.Holds[i].Expires <= ofMicros(r.now) {
			reason = fmt.Sprint(e.Last, e.Holds[i].Kept, e.Holds[i].Expires)
		}
	}
	for _, id := range slices.Concat(w.Alone, w.Group) {
		i := slices.IndexFunc(e.Holds, func(h rule.Hold) bool { return h.ID == id && !h.Kept && h.Expires > ofMicros(r.now) })
		switch {
		case i >= 0:
			b.bells.ring(id, e.Holds[i].Token)
		case reason != "":
			b.bells.remind(id, reason)
		}
	}
	for _, id := range w.Latch {
		switch {
		case e.Kind != driver.Latch:
			b.bells.remind(id, "it is gone")
		case e.Count == 0:
			b.bells.ring(id, 1)
		}
	}
}

// poller is a Bell for where nobody can be woken: it looks again and again while somebody waits.
type poller struct {
	begin chan struct{}
	stop  context.CancelFunc
	done  chan struct{}
}

func (b *Server) poll() Bell {
	ctx, stop := context.WithCancel(b.ctx)
	p := &poller{begin: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		every := pollFirst
		t := time.NewTimer(every)
		defer t.Stop()
		running, due := true, time.Now().Add(every)
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.begin:
				every = pollFirst
				if running && time.Until(due) <= every {
					continue // those who come must not put off those who are there
				}
			case <-t.C:
				if len(b.bells.pending()) > 0 {
					_ = b.look(ctx) // the next may be answered
				}
				every = min(every*3/2, pollLast)
			}
			if running = len(b.bells.pending()) > 0; !running {
				t.Stop()
				continue
			}
			pause := every/2 + rand.N(every)
			due = time.Now().Add(pause)
			t.Reset(pause)
		}
	}()
	return p
}

// Wait implements [Bell].
func (p *poller) Wait() {
	select {
	case p.begin <- struct{}{}:
	default:
	}
}

// Close implements [Bell].
func (p *poller) Close() error {
	p.stop()
	<-p.done
	return nil
}
