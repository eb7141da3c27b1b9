//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package host

import (
	"io"
	"sync"
	"time"
)

// Push reports whether bells can wake waiters; otherwise waiters poll.
const Push = false

// MaxPath is large: there are no sockets here.
const MaxPath = 1 << 15

// Bell receives nothing here.
type Bell struct {
	once sync.Once
	done chan struct{}
}

// Listen returns a Bell that receives nothing.
func Listen(string) (*Bell, error) { return &Bell{done: make(chan struct{})}, nil }

// Read waits for Close.
func (b *Bell) Read([]byte) (int, error) {
	<-b.done
	return 0, io.EOF
}

// ReadUntil does nothing.
func (b *Bell) ReadUntil(time.Time) error { return nil }

// Listens returns true: there are no sockets here.
func Listens(string) bool { return true }

// Intact always returns true.
func (b *Bell) Intact() bool { return true }

// Close ends Read.
func (b *Bell) Close() error {
	b.once.Do(func() { close(b.done) })
	return nil
}

// Drop does the same as Close.
func (b *Bell) Drop() error { return b.Close() }

// Notifier sends nothing here.
type Notifier struct{}

// NewNotifier returns a Notifier.
func NewNotifier() (*Notifier, error) { return &Notifier{}, nil }

// Notify does nothing.
func (r *Notifier) Notify(string, []byte) error { return nil }

// Close does nothing.
func (r *Notifier) Close() error { return nil }
