package drivertest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// mailroom takes pushes for sessions from anybody, and believes what it finds on record.
type mailroom struct {
	believes bool // everything

	mu    sync.Mutex
	boxes map[string]*mailbox // by session
}

// addressed is a store whose sessions have a mailbox each.
type addressed struct {
	driver.Backend
	room *mailroom
}

// mailbox is a session, and where those of its requests hear that wait.
type mailbox struct {
	driver.Session
	store driver.Backend

	mu    sync.Mutex
	wakes map[string]*ear // by request id
	over  chan struct{}
	once  sync.Once
}

func message(id string, token uint64, name string) string {
	return fmt.Sprintf("%s %d %x", id, token, name)
}

func (a *addressed) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := a.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b := &mailbox{Session: s, store: a.Backend, wakes: map[string]*ear{}, over: make(chan struct{})}
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	a.room.boxes[cfg.ID] = b
	return b, nil
}

// send delivers what a stranger sends.
func (m *mailroom) send(_ testing.TB, session, _ string, messages ...string) {
	m.mu.Lock()
	b := m.boxes[session]
	m.mu.Unlock()
	for _, text := range messages {
		var id, name string
		var token uint64
		if n, err := fmt.Sscanf(text[:min(len(text), 1<<10)], "%s %d %x", &id, &token, &name); n != 3 || err != nil {
			continue
		}
		b.mu.Lock()
		wake := b.wakes[id]
		b.mu.Unlock()
		if wake == nil {
			continue
		}
		if rec, err := b.store.Inspect(context.Background(), name); m.believes || err == nil && len(rec.Holders) > 0 && rec.Holders[0].ID == id {
			wake.hear(token)
		}
	}
}

func (b *mailbox) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	reply, err := b.Session.Acquire(ctx, r)
	if reply.Wake != nil {
		reply.Wake = b.open(r.ID, reply.Wake)
	}
	return reply, err
}

// open has the request hear what the store tells it, and what strangers do.
func (b *mailbox) open(id string, in <-chan uint64) <-chan uint64 {
	wake := &ear{out: make(chan uint64, 1)}
	b.mu.Lock()
	b.wakes[id] = wake
	b.mu.Unlock()
	go func() {
		for {
			select {
			case token := <-in:
				wake.hear(token)
			case <-b.over:
				return
			}
		}
	}()
	return wake.out
}

func (b *mailbox) Cancel(ctx context.Context, name, id string) error {
	err := b.Session.Cancel(ctx, name, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if wake := b.wakes[id]; wake != nil && err == nil {
		wake.close()
		delete(b.wakes, id)
	}
	return err
}

func (b *mailbox) Close(ctx context.Context) error {
	b.once.Do(func() { close(b.over) })
	return b.Session.Close(ctx)
}

// brokenPushes are mistakes in what is believed.
var brokenPushes = []broken{
	{name: "believes any push", rule: "R16", believes: true},
}
