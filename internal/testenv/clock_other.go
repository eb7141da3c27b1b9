//go:build !linux

package testenv

import "time"

// Clock is a wall clock of a server's own, which can jump.
type Clock struct{}

// OwnClock skips the test: how a program gets another clock is Linux's.
func (s *server) OwnClock() *Clock {
	s.t.Helper()
	s.t.Skip("a server gets a clock of its own on Linux only")
	return nil
}

// Jump sets the clock forward by d, or back.
func (*Clock) Jump(time.Duration) {}
