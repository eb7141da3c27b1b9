//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package host

import (
	"io"
	"sync"
)

// Push says whether bells wake anybody; without it waiters have to poll.
const Push = false

// MaxPath is of no concern without sockets.
const MaxPath = 1 << 15

// Bell is a bell that nobody can ring.
type Bell struct {
	once sync.Once
	done chan struct{}
}

// Listen returns a bell that stays silent.
func Listen(string) (*Bell, error) { return &Bell{done: make(chan struct{})}, nil }

// Read waits for Close.
func (b *Bell) Read([]byte) (int, error) {
	<-b.done
	return 0, io.EOF
}

// Intact is true.
func (b *Bell) Intact() bool { return true }

// Close ends Read.
func (b *Bell) Close() error {
	b.once.Do(func() { close(b.done) })
	return nil
}

// Drop is Close.
func (b *Bell) Drop() error { return b.Close() }

// Ringer rings nobody.
type Ringer struct{}

// NewRinger returns a Ringer.
func NewRinger() (*Ringer, error) { return &Ringer{}, nil }

// Ring does nothing.
func (r *Ringer) Ring(string, []byte) error { return nil }

// Close does nothing.
func (r *Ringer) Close() error { return nil }
