//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package host

import (
	"context"
	"time"
)

// Gate does nothing here: a process retries while the database is busy.
type Gate struct{}

// OpenGate does nothing.
func OpenGate(string) (*Gate, error) { return &Gate{}, nil }

// Lock returns false: there is no gate.
func (g *Gate) Lock(context.Context, time.Duration) bool { return false }

// Unlock does nothing.
func (g *Gate) Unlock() {}

// Close does nothing.
func (g *Gate) Close() error { return nil }
