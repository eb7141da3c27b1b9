package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// peer is one session and its connection.
type peer struct {
	e *env
	Conn
	driver.Session
	id     string
	called chan string // the IDs of grants that were called back
}

func (e *env) peer() *peer {
	e.Helper()
	return e.peerFor(e.ttl)
}

// shortPeer is a peer whose leases and places expire in the check.
func (e *env) shortPeer() *peer {
	e.Helper()
	return e.peerFor(e.h.TTL)
}

// peerFor is peer with its own TTL.
func (e *env) peerFor(ttl time.Duration) *peer {
	e.Helper()
	c := e.conn()
	called := make(chan string, 1024)
	wanted := func(_, id string) {
		select {
		case called <- id:
		default:
		}
	}
	var id string
	var s driver.Session
	err := e.answered(func() (err error) { // with a new ID: something may be left of the last one
		id = strings.ToLower(rand.Text())
		s, err = c.Open(e.ctx, driver.SessionConfig{ID: id, TTL: ttl, Wanted: wanted,
			Info: driver.Info{Host: "h", PID: 1, Note: id}.String()})
		return err
	})
	if err != nil {
		e.Fatalf("Open: %v", err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // it may be dead
	})
	return &peer{e, c, s, id, called}
}

// Close resolves the ambiguity between the embedded Backend and Session.
func (p *peer) Close(ctx context.Context) error { return p.Session.Close(ctx) }

// req makes a request that waits.
func (p *peer) req(name string) *driver.Request {
	n := int(p.e.ids.Add(1))
	id := p.id + "-" + string(rune('a'+n%26)) + strings.Repeat("z", n/26%10) + itoa(n)
	return &driver.Request{ID: id, Name: p.e.name(name), Mode: driver.Exclusive, N: 1, Wait: true,
		Info: driver.Info{Note: "info of " + name}.String()}
}

func (p *peer) shared(name string) *driver.Request {
	r := p.req(name)
	r.Mode = driver.Shared
	return r
}

func (p *peer) permits(name string, n, limit int) *driver.Request {
	r := p.req(name)
	r.Mode, r.N, r.Limit = driver.Permits, n, limit
	return r
}

func once(r *driver.Request) *driver.Request { r.Wait = false; return r }

// ask is an Acquire that must be answered.
func (p *peer) ask(r *driver.Request) driver.Reply {
	p.e.Helper()
	reply, err := p.Acquire(p.e.ctx, r)
	for try := 0; try < 2 && errors.Is(err, driver.ErrSpent); try++ { // replicas may be busy
		r.ID = p.req(r.Name).ID
		reply, err = p.Acquire(p.e.ctx, r)
	}
	if err != nil {
		p.e.Fatalf("Acquire(%q): %v", r.Name, err)
	}
	return reply
}

// get is an Acquire that must be granted.
func (p *peer) get(r *driver.Request) driver.Hold {
	p.e.Helper()
	reply := p.ask(r)
	if reply.Token == 0 {
		p.e.Fatalf("Acquire(%q) was not granted; in the way: %+v", r.Name, reply.Holder)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

// refused is an Acquire that must not be granted.
func (p *peer) refused(r *driver.Request) driver.Reply {
	p.e.Helper()
	reply := p.ask(r)
	if reply.Token != 0 {
		p.e.Fatalf("Acquire(%q) was granted token %d while another held the lock", r.Name, reply.Token)
	}
	if r.Wait && reply.Wake == nil {
		p.e.Fatalf("Acquire(%q): no Wake for a request that waits", r.Name)
	}
	return reply
}

func (p *peer) release(h driver.Hold) {
	p.e.Helper()
	if err := p.Release(p.e.ctx, h, 0); err != nil {
		p.e.Fatalf("Release(%q): %v", h.Name, err)
	}
}

// tryRelease reports whether a release is done. The grant may be over.
func (p *peer) tryRelease(h driver.Hold) bool {
	p.e.Helper()
	err := p.Release(p.e.ctx, h, 0)
	if err != nil {
		p.e.Logf("Release(%q): %v", h.Name, err)
	}
	return err == nil
}

// answered repeats f, as callers do, until the store answers: a slow machine may have lost a
// connection, or the proof of a session.
func (e *env) answered(f func() error) (err error) {
	for end := time.Now().Add(patience); ; time.Sleep(quiet) {
		err = f()
		if !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) || time.Now().After(end) {
			return err
		}
	}
}

// tryRenew reports whether h is renewed. Its grant or its session may be over.
func (p *peer) tryRenew(h driver.Hold) bool {
	p.e.Helper()
	var changes []driver.Change
	err := p.e.answered(func() (err error) {
		changes, err = p.Renew(p.e.ctx, []driver.Hold{h})
		return err
	})
	if err != nil || len(changes) > 0 {
		p.e.Logf("Renew(%q): %+v, %v", h.Name, changes, err)
	}
	return err == nil && len(changes) == 0
}

// renew is a Renew of one hold that must be answered; the zero Change means no change.
func (p *peer) renew(h driver.Hold) driver.Change {
	p.e.Helper()
	var changes []driver.Change
	err := p.e.answered(func() (err error) {
		changes, err = p.Renew(p.e.ctx, []driver.Hold{h})
		return err
	})
	if err != nil {
		p.e.Fatalf("Renew(%q): %v", h.Name, err)
	}
	if len(changes) == 0 {
		return driver.Change{}
	}
	if len(changes) > 1 || changes[0].Index != 0 {
		p.e.Fatalf("Renew of one hold answered %+v", changes)
	}
	return changes[0]
}

func place(r *driver.Request) driver.Hold { return driver.Hold{Name: r.Name, ID: r.ID} }

// inspect is an Inspect that must be answered.
func (p *peer) inspect(name string) driver.Record {
	p.e.Helper()
	r, err := p.Inspect(p.e.ctx, p.e.name(name))
	if err != nil {
		p.e.Fatalf("Inspect(%q): %v", name, err)
	}
	return r
}

func itoa(n int) string {
	const digits = "0123456789"
	if n < 10 {
		return digits[n : n+1]
	}
	return itoa(n/10) + digits[n%10:n%10+1]
}
