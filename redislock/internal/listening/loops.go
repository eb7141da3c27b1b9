package listening

import (
	"sync"
	"sync/atomic"
)

// Loops are the goroutines of a Conn that its Close waits for. The zero value is ready. Its methods may
// be called concurrently.
type Loops struct {
	mu     sync.Mutex // of the start of the first goroutine: a WaitGroup must not be waited for meanwhile
	closed atomic.Bool
	all    sync.WaitGroup
}

// Start runs f in a goroutine. It returns false after Close.
func (l *Loops) Start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.all.Go(f)
	return true
}

// Go runs f in a goroutine, after Close as well. Only a goroutine of l may call it.
func (l *Loops) Go(f func()) { l.all.Go(f) }

// Closed reports whether Close was called.
func (l *Loops) Closed() bool { return l.closed.Load() }

// Close makes Start return false, calls end, which should make the goroutines return, and waits for them.
func (l *Loops) Close(end func()) {
	l.mu.Lock()
	l.closed.Store(true)
	l.mu.Unlock()
	end()
	l.all.Wait()
}
