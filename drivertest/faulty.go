package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// retryable reports whether an error leaves the outcome of a request open.
func retryable(err error) bool {
	return errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Faulty puts a network with injectable faults between a client and a store that has no network.
func Faulty(b driver.Backend) Conn {
	f := &faulty{Backend: b, quit: make(chan struct{})}
	set := func(fault fault) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.fault != killed {
			f.fault = fault
		}
		if fault == killed {
			close(f.quit)
		}
	}
	hurt := func(fault fault) func() func() {
		return func() func() {
			set(fault)
			return func() { set(well) }
		}
	}
	return Conn{
		Backend: f, Kill: sync.OnceFunc(func() { set(killed) }), Cut: hurt(cut), DropReplies: hurt(drop),
		Hold: f.hold, Forget: f.forget,
	}
}

// hold holds back every Acquire until deliver is called. Other calls overtake them, as if on
// another connection.
func (f *faulty) hold() (deliver func()) {
	held := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = nil
		close(held)
	})
}

// forget loses what is under way, and all pushes for requests that are not sent again.
func (f *faulty) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generations++
}

// silence is how long a call without a deadline waits for an answer.
const silence = 5 * time.Second

type fault int

const (
	well fault = iota
	cut
	drop
	killed
)

type faulty struct {
	driver.Backend
	mu          sync.Mutex
	fault       fault
	held        chan struct{} // closed when the held calls are delivered; nil: none are held
	generations int           // how often the connections were forgotten
	quit        chan struct{} // closed when killed
}

func (f *faulty) generation() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.generations
}

func (f *faulty) now() fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// delayable sends an Acquire that may be held back. Once delivered, it is done even if its caller
// has gone.
func (f *faulty) delayable(ctx context.Context, call func(context.Context) error) error {
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	if held == nil {
		return f.send(ctx, func() error { return call(ctx) })
	}
	done := make(chan error, 1)
	go func() {
		select {
		case <-held:
			done <- call(context.WithoutCancel(ctx))
		case <-f.quit:
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-f.quit:
	}
	return fmt.Errorf("%w: the request is on its way: %w", driver.ErrUncertain, context.DeadlineExceeded)
}

// send makes one exchange over the network in its current state.
func (f *faulty) send(ctx context.Context, call func() error) error {
	switch f.now() {
	case cut, killed:
		limit := time.NewTimer(silence)
		defer limit.Stop()
		select {
		case <-ctx.Done():
		case <-limit.C:
		case <-f.quit:
		}
		return fmt.Errorf("%w: the network is cut: %w", driver.ErrUncertain, context.DeadlineExceeded)
	case drop:
		_ = call()
		limit := time.NewTimer(silence)
		defer limit.Stop()
		select {
		case <-ctx.Done():
		case <-limit.C:
		}
		return fmt.Errorf("%w: the answer was lost: %w", driver.ErrUncertain, context.DeadlineExceeded)
	}
	return call()
}

func (f *faulty) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	var s driver.Session
	err := f.send(ctx, func() (err error) { s, err = f.Backend.Open(ctx, cfg); return err })
	if err != nil {
		return nil, err
	}
	return &faultySession{Session: s, f: f, over: make(chan struct{})}, nil
}

func (f *faulty) List(ctx context.Context, prefix, after string, limit int) (l []driver.Record, err error) {
	err = f.send(ctx, func() (err error) { l, err = f.Backend.List(ctx, prefix, after, limit); return err })
	return l, err
}

func (f *faulty) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = f.send(ctx, func() (err error) { r, err = f.Backend.Inspect(ctx, name); return err })
	return r, err
}

// Watch implements driver.Watcher, if the store does. Hints that are sent while the network is down
// are lost, and neither side notices.
func (f *faulty) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	return driver.Watch(ctx, f.Backend, prefix, func(name string) {
		if f.now() == well {
			changed(name)
		}
	})
}

func (f *faulty) Break(ctx context.Context, name string, token uint64) error {
	return f.send(ctx, func() error { return f.Backend.Break(ctx, name, token) })
}

func (f *faulty) RemoveLatch(ctx context.Context, name string) error {
	return f.send(ctx, func() error { return f.Backend.RemoveLatch(ctx, name) })
}

func (f *faulty) SetLimit(ctx context.Context, name string, limit int) error {
	return f.send(ctx, func() error { return f.Backend.SetLimit(ctx, name, limit) })
}

func (f *faulty) AddHistory(ctx context.Context, name, text string, keep int) error {
	return f.send(ctx, func() error { return f.Backend.AddHistory(ctx, name, text, keep) })
}

func (f *faulty) History(ctx context.Context, name string) (list []driver.Entry, err error) {
	err = f.send(ctx, func() (err error) { list, err = f.Backend.History(ctx, name); return err })
	return list, err
}

type faultySession struct {
	driver.Session
	f      *faulty
	once   sync.Once
	over   chan struct{} // closed by Close
	relays sync.Map      // request ID: *relay
}

// relay forwards pushes to a waiter, until the waiter cancels.
type relay struct {
	mu  sync.Mutex
	out chan uint64
	end bool
}

// deliver forwards a push; it replaces one that nobody has read.
func (r *relay) deliver(token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end {
		return
	}
	select {
	case <-r.out:
	default:
	}
	r.out <- token
}

// close makes sure that no push follows.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = true
	select {
	case <-r.out:
	default:
	}
}

// wake drops the pushes that arrive while the network is down.
func (s *faultySession) wake(id string, reply driver.Reply) driver.Reply {
	if reply.Wake == nil {
		return reply
	}
	in, out := reply.Wake, &relay{out: make(chan uint64, 1)}
	s.relays.Store(id, out)
	flow := s.f.generation()
	go func() {
		for {
			select {
			case token := <-in:
				if s.f.now() == well && s.f.generation() == flow {
					out.deliver(token)
				}
			case <-s.f.quit:
				return
			case <-s.over:
				return
			}
		}
	}()
	reply.Wake = out.out
	return reply
}

func (s *faultySession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	req, got := *r, make(chan driver.Reply, 1) // a held Acquire outlives this call
	err := s.f.delayable(ctx, func(ctx context.Context) error {
		reply, err := s.Session.Acquire(ctx, &req)
		got <- reply
		return err
	})
	if err != nil {
		return driver.Reply{}, err
	}
	return s.wake(r.ID, <-got), nil
}

func (s *faultySession) Await(ctx context.Context, name, id string) (reply driver.Reply, err error) {
	err = s.f.send(ctx, func() (err error) { reply, err = s.Session.Await(ctx, name, id); return err })
	return s.wake(id, reply), err
}

func (s *faultySession) Cancel(ctx context.Context, name, id string) error {
	err := s.f.send(ctx, func() error { return s.Session.Cancel(ctx, name, id) })
	if out, ok := s.relays.Load(id); ok && err == nil {
		out.(*relay).close()
		s.relays.Delete(id)
	}
	return err
}

func (s *faultySession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	return s.f.send(ctx, func() error { return s.Session.Release(ctx, h, keep) })
}

func (s *faultySession) Renew(ctx context.Context, holds []driver.Hold) (ch []driver.Change, err error) {
	err = s.f.send(ctx, func() (err error) { ch, err = s.Session.Renew(ctx, holds); return err })
	return ch, err
}

func (s *faultySession) Downgrade(ctx context.Context, h driver.Hold) error {
	return s.f.send(ctx, func() error { return s.Session.Downgrade(ctx, h) })
}

func (s *faultySession) Reduce(ctx context.Context, h driver.Hold, n int) error {
	return s.f.send(ctx, func() error { return s.Session.Reduce(ctx, h, n) })
}

func (s *faultySession) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	return s.f.send(ctx, func() error { return s.Session.Adopt(ctx, h, id, info) })
}

func (s *faultySession) SetCount(ctx context.Context, name string, n int64) (ok bool, err error) {
	err = s.f.send(ctx, func() (err error) { ok, err = s.Session.SetCount(ctx, name, n); return err })
	return ok, err
}

func (s *faultySession) CountDown(ctx context.Context, name, id string) (left int64, err error) {
	err = s.f.send(ctx, func() (err error) { left, err = s.Session.CountDown(ctx, name, id); return err })
	return left, err
}

func (s *faultySession) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.over) })
	return s.f.send(ctx, func() error { return s.Session.Close(ctx) })
}
