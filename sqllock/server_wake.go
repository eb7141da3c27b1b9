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

// NoSecretRight is the reason of OpenBell if the role may not read the secret that seals pushes.
const NoSecretRight = "the role may not read hf_secret: clients that take locks need that right"

// bellSleep is the longest delay after a lost wake-up. Where waiters cannot be woken, they poll:
// every pollFirst after a wait begins, less often later, up to every pollLast.
const (
	bellSleep = time.Second
	pollFirst = 5 * time.Millisecond
	pollLast  = 50 * time.Millisecond
)

// listen starts what wakes waiters, before the first of them waits.
func (b *Server) listen(ctx context.Context) error {
	select {
	case <-b.opening:
		defer func() { b.opening <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	b.mu.Lock()
	done := b.bell != nil || b.closed
	noPush := b.at.NoPush
	b.mu.Unlock()
	if done {
		return nil
	}
	// Open the reserved connection first, before the application uses up the pool.
	if err := b.reserved.use(ctx, waking, func(context.Context, sqlConn) error { return nil }); err != nil {
		return err
	}
	var bell Bell
	reason := noPush
	if reason == "" {
		db := b.db
		if b.cfg.Listen != nil {
			db = b.cfg.Listen
		}
		var err error
		bell, reason, err = b.d.OpenBell(ctx, BellConfig{
			DB: db, Server: b.id, Keep: b.onReserved, Heard: b.received, Look: b.look, Waiting: b.waiting, Sleep: bellSleep,
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

// onReserved runs f on the reserved connection.
func (b *Server) onReserved(ctx context.Context, f func(q Querier, opened time.Time) error) error {
	return b.reserved.use(ctx, waking, func(_ context.Context, l sqlConn) error { return f(b.on(l), b.reserved.opened) })
}

// background runs f in a goroutine, unless b is closed. Close waits for it.
func (b *Server) background(f func()) (runs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Go(f)
	}
	return !b.closed
}

// wakeLimit bounds a wake-up of others. Waiters that it did not reach find out by themselves.
const wakeLimit = time.Second

// wake notifies other Servers, in the background. Close waits for it without ending it, so that a
// program that releases and exits leaves nobody waiting for a free lock.
func (b *Server) wake(rings []Ring) {
	b.background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wakeLimit)
		defer cancel()
		_ = b.onReserved(ctx, func(q Querier, opened time.Time) error { return b.d.Wake(ctx, q, opened, rings) })
	})
	runtime.Gosched() // lets the wake-up start before the caller asks for the lock again
}

// expect reports to the bell that a request waits here.
func (b *Server) expect() {
	b.mu.Lock()
	bell := b.bell
	b.mu.Unlock()
	if bell != nil {
		bell.Wait()
	}
	if b.bellForSockets() != nil {
		b.socket.Listen()
	}
}

// received handles a notification from another Server, or from a statement.
func (b *Server) received(r Ring) {
	if r.ID == "" { // for an unknown waiter
		b.background(func() { _ = b.look(b.ctx) })
		return
	}
	if r.Token != 0 && !b.wanted(r.ID) && r.Name != "" {
		b.giveBack(r)
		return
	}
	b.waiters.Notify(r.ID, r.Token)
}

// giveBack ends a grant that was handed to an abandoned request, so that the next waiter need not
// wait for its expiry. Notifications may be repeated, so only one call for a request runs at a
// time.
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
				// otherwise this repeats a notification that was meant for another Server
				if !b.wanted(r.ID) && rec.isOf(r.ID, b.id) {
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

// wanted reports whether a request waits here, is about to wait, or holds its grant. It may have
// got the grant another way before the notification.
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

// look reads the records of all waiters here and notifies them.
func (b *Server) look(ctx context.Context) error {
	pending := b.waiting()
	for names := range slices.Chunk(slices.Sorted(maps.Keys(pending)), rowsAtOnce) {
		n := padded(len(names))
		args := make([]any, n)
		for i := range args {
			args[i] = []byte(names[min(i, len(names)-1)])
		}
		// Omit the queue: it is long, and nothing in it matters here.
		text := b.text("SELECT name, kind, counter, token, hid, kept, expires, more, {now} FROM hf_lock WHERE name IN (" +
			marks(n) + ")")
		err := b.read(ctx, func(ctx context.Context, l sqlConn) error {
			return b.each(ctx, b.on(l).Prepared(), text, args, func(row *sql.Rows) error {
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

// show notifies the waiters of a name of changes in its record.
func (b *Server) show(r *record, w Waiters) {
	e := &r.entry
	if r.damaged != nil { // when they ask again, they get the error
		for _, id := range slices.Concat(w.Alone, w.Group, w.Latch) {
			b.waiters.Ask(id, "damaged")
		}
		return
	}
	reason := "" // to ask again: the name is kept, or a lease has expired
	for i := range e.Holds {
		if e.Holds[i].Kept || e.Holds[i].Expires <= ofMicros(r.now) {
			reason = fmt.Sprint(e.Last, e.Holds[i].Kept, e.Holds[i].Expires)
		}
	}
	for _, id := range slices.Concat(w.Alone, w.Group) {
		i := slices.IndexFunc(e.Holds, func(h rule.Hold) bool { return h.ID == id && !h.Kept && h.Expires > ofMicros(r.now) })
		switch {
		case i >= 0:
			b.waiters.Notify(id, e.Holds[i].Token)
		case reason != "":
			b.waiters.Ask(id, reason)
		}
	}
	for _, id := range w.Latch {
		switch {
		case e.Kind != driver.Latch:
			b.waiters.Ask(id, "it is gone")
		case e.Count == 0:
			b.waiters.Notify(id, 1)
		}
	}
}

// poller is a Bell for servers that cannot wake waiters: it looks repeatedly while requests wait.
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
					continue // new waiters must not delay the look for the others
				}
			case <-t.C:
				if len(b.waiting()) > 0 {
					_ = b.look(ctx) // ignore the error: the next look may succeed
				}
				every = min(every*3/2, pollLast)
			}
			if running = len(b.waiting()) > 0; !running {
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

func (p *poller) Wait() {
	select {
	case p.begin <- struct{}{}:
	default:
	}
}

func (p *poller) Close() error {
	p.stop()
	<-p.done
	return nil
}
