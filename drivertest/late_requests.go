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
		e.lateRequest(func(c *holdfast.Client, ctx context.Context) error {
			_, err := c.Mutex(e.name("x")).Lock(ctx)
			return err
		})
	}},
	{"R8", "attempt after its cancel", "an attempt that arrives after its cancel leaves no grant behind", func(e *env) {
		e.lateRequest(func(c *holdfast.Client, ctx context.Context) error {
			_, err := c.Mutex(e.name("x")).TryLock(ctx)
			return err
		})
	}},
	{"R8", "cancel again", "if a request arrives after its cancel, the same cancel sent again ends its grant",
		func(e *env) {
			a, b := e.peer(), e.peer()
			for _, wait := range []bool{true, false} {
				r := b.req("x")
				r.Wait = wait
				b.release(b.get(once(b.req("x"))))
				deliver := b.Hold()
				e.answerLost(func(ctx context.Context) error { _, err := b.Acquire(ctx, r); return err })
				ctx, cancel := context.WithTimeout(e.ctx, time.Second)
				_ = b.Cancel(ctx, r.Name, r.ID) // Cancel may be held back, too
				cancel()
				deliver()
				e.withinLease("the name is free", func() bool {
					ctx, cancel := context.WithTimeout(e.ctx, time.Second)
					defer cancel()
					_ = b.Cancel(ctx, r.Name, r.ID)
					probe := once(a.req("x"))
					reply := a.ask(probe)
					if reply.Token != 0 {
						a.release(driver.Hold{Name: probe.Name, ID: probe.ID, Token: reply.Token})
					}
					return reply.Token != 0
				})
				time.Sleep(quiet) // enough time to arrive even later
				if err := b.Cancel(e.ctx, r.Name, r.ID); err != nil {
					e.Errorf("Cancel: %v", err)
				}
				a.release(a.get(once(a.req("x"))))
			}
		}},
	{"R8", "place after its cancel", "a request to wait that arrives after its cancel leaves no place in the queue",
		func(e *env) {
			conn := e.conn()
			a, b := e.client(nil), e.clientOn(conn, nil)
			l := e.lock(a, "x")
			e.delayCall(conn, b, func(ctx context.Context) error { _, err := b.Mutex(e.name("x")).Lock(ctx); return err })
			e.withinLease("nobody waits", func() bool { return e.waiting(a, "x") == 0 })
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
			e.withinLease("the name is free", func() bool { return e.free(a, "x") })
		}},
	{"R8", "close during locks", "a client that is closed during many Locks leaves no grant and no place behind",
		func(e *env) {
			watch := e.client(nil)
			for round := range 5 {
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
				e.withinLease("nothing is left of the client", func() bool {
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
func (e *env) lateRequest(lock func(*holdfast.Client, context.Context) error) {
	e.Helper()
	conn := e.conn()
	a, b := e.client(nil), e.clientOn(conn, nil)
	for range 3 {
		e.delayCall(conn, b, func(ctx context.Context) error { return lock(b, ctx) })
		e.withinLease("the name is free", func() bool { return e.free(a, "x") })
	}
}

// delayCall makes a call whose request is held back until the call has given up, and for some time
// after that.
func (e *env) delayCall(conn Conn, c *holdfast.Client, call func(context.Context) error) {
	e.Helper()
	for i := range 3 { // open the connections that the client uses
		l := e.lock(c, fmt.Sprint("open", i))
		if err := l.Release(); err != nil {
			e.Fatal(err)
		}
	}
	deliver := conn.Hold()
	defer deliver()
	ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
	defer cancel()
	switch err := call(ctx); {
	case err == nil:
		e.Fatal("granted, although its request was kept back")
	case !errors.Is(err, context.DeadlineExceeded):
		e.Errorf("%v; want context.DeadlineExceeded", err)
	}
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

// withinLease polls for what must become true before a lease of longTTL has expired.
func (e *env) withinLease(what string, ok func() bool) {
	e.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("never came true: %s", what)
		}
	}
}
