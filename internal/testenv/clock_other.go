//go:build !linux

package testenv

import "time"

// Clock is a wall clock for one server, which can jump.
type Clock struct{}

// OwnClock skips the test: the method is Linux's.
func (s *server) OwnClock() *Clock {
	s.t.Helper()
	s.t.Skip("servers with a clock of their own exist only on Linux")
	return nil
}

// Jump sets the clock forward by d, or back.
func (*Clock) Jump(time.Duration) {}
