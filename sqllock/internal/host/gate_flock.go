//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package host

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Gate lets the processes that share a store write one after another. The database itself excludes
// them. But without the Gate, a process must retry while the database is busy; the kernel wakes a
// process that waits for a flock. Only one goroutine may use it at a time.
type Gate struct {
	f *os.File

	mu      sync.Mutex
	pending *pending // a flock call in progress
}

type pending struct {
	done   chan struct{}
	wanted bool // false: drop the flock as soon as it is granted
	closes bool // the gate was closed meanwhile, so drop the file
}

// OpenGate opens or creates the gate's file, with mode 0600.
func OpenGate(path string) (*Gate, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &Gate{f: f}, nil
}

// Lock waits for the gate until ctx ends or limit has passed, and reports whether it got the gate.
// A process stopped inside the gate keeps it: then the database's locks decide.
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

// wait blocks a thread. At most one such call may run, because a second one on the same descriptor
// would succeed at once.
func (g *Gate) wait(p *pending) {
	err := flock(g.f, unix.LOCK_EX)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending = nil
	switch {
	case p.wanted: // also after an error: the gate is optional
		close(p.done)
	case p.closes:
		_ = g.f.Close()
	case err == nil:
		_ = flock(g.f, unix.LOCK_UN)
	}
}

// Unlock lets the next process in.
func (g *Gate) Unlock() { _ = flock(g.f, unix.LOCK_UN) }

// Close closes the file. A call that still waits for the gate ends, and closes the file, when the process
// inside ends.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending != nil && !g.pending.wanted {
		g.pending.closes = true
		return nil
	}
	return g.f.Close()
}
