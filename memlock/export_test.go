package memlock

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// SetClock replaces the store's clock.
func (s *Store) SetClock(now func() time.Duration) { s.now = now }

// Waiters returns how many requests s keeps a channel for.
func Waiters(s driver.Session) int { return s.(*session).waiters.Len() }
