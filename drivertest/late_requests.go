package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// lateRequests are the checks of a request that arrives after its cancel, through package holdfast.
// A lease lasts for a minute, so a free name has been released.
var lateRequests = []check{
	{"R8", "acquire after its cancel", "a request that arrives after its cancel leaves no grant behind", func(e *env) {
		e.lateRequest(func(c *holdfast.Client, ctx context.Context) (*holdfast.Lease, error) {
			return c.Mutex(e.name("x")).Lock(ctx)
		})
	}},
	{"R8", "attempt after its cancel", "an attempt that arrives after its cancel leaves no grant behind", func(e *env) {
		e.lateRequest(func(c *holdfast.Client, ctx context.Context) (*holdfast.Lease, error) {
			return c.Mutex(e.name("x")).TryLock(ctx)
		})
	}},
	{"R8", "cancel again", "if a request arrives after its cancel, the same cancel sent again ends its grant",
		func(e *env) {
			a, b := e.peer(), e.peer()
			for _, wait := range []bool{true, false} {
				r, deliver := e.delayAcquire(b, wait)
				ctx, cancel := context.WithTimeout(e.ctx, time.Second)
				_ = b.Cancel(ctx, r.Name, r.ID) // Cancel may be held back, too
				cancel()
				deliver()
				free := func() bool { // after the same cancel
					ctx, cancel := context.WithTimeout(e.ctx, time.Second)
					defer cancel()
					_ = b.Cancel(ctx, r.Name, r.ID)
					probe := once(a.req("x"))
					reply := a.ask(probe)
					if reply.Token != 0 {
						a.release(driver.Hold{Name: probe.Name, ID: probe.ID, Token: reply.Token})
					}
					return reply.Token != 0
				}
				e.until("the name is free", free)
				time.Sleep(quiet) // enough time to arrive even later
				e.until("the name is free again", free)
				if err := b.Cancel(e.ctx, r.Name, r.ID); err != nil {
					e.Errorf("Cancel: %v", err)
				}
			}
		}},
	{"R8", "place after its cancel", "a request to wait that arrives after its cancel leaves no place in the queue",
		func(e *env) {
			conn := e.conn()
			a, b := e.client(nil), e.clientOn(conn, nil)
			l := e.lock(a, "x")
			e.delayCall(conn, b, func(ctx context.Context) (*holdfast.Lease, error) { return b.Mutex(e.name("x")).Lock(ctx) })
			e.until("nobody waits", func() bool { return e.waiting(a, "x") == 0 })
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
			e.until("the name is free", func() bool { return e.free(a, "x") })
		}},
	{"R8", "close during locks", "a client that is closed during many Locks leaves no grant and no place behind",
		func(e *env) {
			watch := e.client(nil)
			for round := range 3 {
				c := e.client(nil)
				var all sync.WaitGroup
				begun := make(chan struct{}, 64)
				for i := range 32 {
					all.Go(func() {
						for j := 0; ; j++ {
							name := e.name(fmt.Sprintf("%d/%d/%d", round, i/2, j)) // two for each
							if _, err := c.Mutex(name).Lock(e.ctx); err != nil {
								if !errors.Is(err, holdfast.ErrClosed) {
									e.Errorf("Lock during Close: %v; want ErrClosed", err)
								}
								return
							}
							select {
							case begun <- struct{}{}:
							default:
							}
						}
					})
				}
				for range cap(begun) {
					<-begun
				}
				if err := c.Close(e.ctx); err != nil {
					e.Fatalf("Close: %v", err)
				}
				all.Wait()
				e.until("nothing is left of the client", func() bool {
					for rec, err := range watch.Locks(e.ctx, e.prefix) {
						if err != nil {
							e.Fatalf("Locks: %v", err)
						}
						return rec.Kind == ""
					}
					return true
				})
			}
		}},
}

// lateRequest lets the request of lock arrive after its cancel: the name must soon be free.
func (e *env) lateRequest(lock func(*holdfast.Client, context.Context) (*holdfast.Lease, error)) {
	e.Helper()
	conn := e.conn()
	a, b := e.client(nil), e.clientOn(conn, nil)
	for range 3 {
		e.delayCall(conn, b, func(ctx context.Context) (*holdfast.Lease, error) { return lock(b, ctx) })
		e.until("the name is free", func() bool { return e.free(a, "x") })
	}
}

// A request on a new connection is not held back, and on a slow machine a client may open one. Such
// an attempt is undone and repeated.
const attempts = 10

// delayCall makes a call whose request is held back until the call has given up, and for some time
// after that.
func (e *env) delayCall(conn Conn, c *holdfast.Client, call func(context.Context) (*holdfast.Lease, error)) {
	e.Helper()
	for range attempts {
		for i := range 3 { // open the connections that the client uses
			l := e.lock(c, fmt.Sprint("open", i))
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
		}
		deliver := conn.Hold()
		ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
		l, err := call(ctx)
		cancel()
		deliver()
		if err == nil {
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("%v; want context.DeadlineExceeded", err)
		}
		return
	}
	e.Fatalf("no request was held back in %d attempts", attempts)
}

// delayAcquire sends a request for x that is held back until deliver is called.
func (e *env) delayAcquire(p *peer, wait bool) (r *driver.Request, deliver func()) {
	e.Helper()
	for range attempts {
		r = p.req("x")
		r.Wait = wait
		p.release(p.get(once(p.req("x"))))
		deliver = p.Hold()
		ctx, cancel := context.WithTimeout(e.ctx, 500*time.Millisecond)
		_, err := p.Acquire(ctx, r)
		cancel()
		if err != nil {
			if !retryable(err) {
				e.Fatalf("a call whose request was held back returned a final error: %v", err)
			}
			return r, deliver
		}
		deliver()
		if err := p.Cancel(e.ctx, r.Name, r.ID); err != nil {
			e.Fatalf("Cancel: %v", err)
		}
	}
	e.Fatalf("no request was held back in %d attempts", attempts)
	return nil, nil
}

// free reports whether a client gets the lock of name at once.
func (e *env) free(c *holdfast.Client, name string) bool {
	e.Helper()
	l, err := c.Mutex(e.name(name)).TryLock(e.ctx)
	if errors.Is(err, holdfast.ErrHeld) {
		return false
	}
	if err == nil {
		err = l.Release()
	}
	if err != nil {
		e.Fatalf("TryLock: %v", err)
	}
	return true
}
