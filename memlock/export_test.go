package memlock

import "time"

// SetClock replaces the store's clock.
func (s *Store) SetClock(now func() time.Duration) { s.now = now }
