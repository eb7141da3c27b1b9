//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package host

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Gate lets the processes that share a store write one after another. It is not what keeps
// them apart (the database does that); but who waits for a database that is busy has to
// try again and again, while who waits for a flock is woken by the kernel. One goroutine
// of the process uses it at a time.
type Gate struct {
	f *os.File

	mu      sync.Mutex
	pending *pending // a flock call that has not returned yet
}

type pending struct {
	done   chan struct{}
	wanted bool // else the flock is dropped as soon as it is had
}

// OpenGate opens or creates the file of the gate, with mode 0600.
func OpenGate(path string) (*Gate, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &Gate{f: f}, nil
}

// Lock waits for the gate until ctx ends or limit has passed, and reports whether it was had.
// A process that was stopped inside it keeps it: then the database has to decide.
func (g *Gate) Lock(ctx context.Context, limit time.Duration) bool {
	g.mu.Lock()
	if g.pending == nil && flock(g.f, unix.LOCK_EX|unix.LOCK_NB) == nil {
		g.mu.Unlock()
		return true
	}
	if g.pending == nil {
		p := &pending{done: make(chan struct{})}
		g.pending = p
		go g.wait(p)
	}
	p := g.pending
	p.wanted = true
	g.mu.Unlock()

	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-p.done:
		return true
	default:
		p.wanted = false
		return false
	}
}

// wait blocks a thread. There is at most one such call, because a second one on the same
// descriptor would be granted beside it.
func (g *Gate) wait(p *pending) {
	err := flock(g.f, unix.LOCK_EX)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending = nil
	switch {
	case p.wanted: // also after an error: the gate is a courtesy
		close(p.done)
	case err == nil:
		_ = flock(g.f, unix.LOCK_UN)
	}
}

// Unlock lets the next process in.
func (g *Gate) Unlock() { _ = flock(g.f, unix.LOCK_UN) }

// Close closes the file. A call that still waits for it ends with the process that is inside.
func (g *Gate) Close() error { return g.f.Close() }
