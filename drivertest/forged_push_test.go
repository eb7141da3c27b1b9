package drivertest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// pushServer accepts pushes for sessions from anybody, and delivers those whose grant is on record.
type pushServer struct {
	believesAll bool // delivers all

	mu       sync.Mutex
	sessions map[string]*pushSession // by session ID
}

// pushBackend is a store whose sessions register at a pushServer.
type pushBackend struct {
	driver.Backend
	server *pushServer
}

func (b *pushBackend) Watch(ctx context.Context, prefix string, changed func(string)) error {
	return driver.Watch(ctx, b.Backend, prefix, changed)
}

// pushSession is a session that receives pushes.
type pushSession struct {
	driver.Session
	store driver.Backend

	mu     sync.Mutex
	relays map[string]*relay // by request ID
	closed chan struct{}
	once   sync.Once
}

func message(id string, token uint64, name string) string {
	return fmt.Sprintf("%s %d %x", id, token, name)
}

func (a *pushBackend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := a.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b := &pushSession{Session: s, store: a.Backend, relays: map[string]*relay{}, closed: make(chan struct{})}
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	a.server.sessions[cfg.ID] = b
	return b, nil
}

// send delivers the messages of a stranger.
func (m *pushServer) send(_ testing.TB, session, _ string, messages ...string) {
	m.mu.Lock()
	b := m.sessions[session]
	m.mu.Unlock()
	for _, text := range messages {
		var id, name string
		var token uint64
		if n, err := fmt.Sscanf(text[:min(len(text), 1<<10)], "%s %d %x", &id, &token, &name); n != 3 || err != nil {
			continue
		}
		b.mu.Lock()
		wake := b.relays[id]
		b.mu.Unlock()
		if wake == nil {
			continue
		}
		if rec, err := b.store.Inspect(context.Background(), name); m.believesAll || err == nil && len(rec.Holders) > 0 &&
			rec.Holders[0].ID == id {
			wake.deliver(token)
		}
	}
}

func (b *pushSession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	reply, err := b.Session.Acquire(ctx, r)
	if reply.Wake != nil {
		reply.Wake = b.relay(r.ID, reply.Wake)
	}
	return reply, err
}

// relay forwards to the request the pushes of the store and of strangers.
func (b *pushSession) relay(id string, in <-chan uint64) <-chan uint64 {
	wake := &relay{out: make(chan uint64, 1)}
	b.mu.Lock()
	b.relays[id] = wake
	b.mu.Unlock()
	go func() {
		for {
			select {
			case token := <-in:
				wake.deliver(token)
			case <-b.closed:
				return
			}
		}
	}()
	return wake.out
}

func (b *pushSession) Cancel(ctx context.Context, name, id string) error {
	err := b.Session.Cancel(ctx, name, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if wake := b.relays[id]; wake != nil && err == nil {
		wake.close()
		delete(b.relays, id)
	}
	return err
}

func (b *pushSession) Close(ctx context.Context) error {
	b.once.Do(func() { close(b.closed) })
	return b.Session.Close(ctx)
}

// brokenPushes are mistakes in which pushes are believed.
var brokenPushes = []broken{
	{name: "believes any push", rule: "R16", believes: true},
}
