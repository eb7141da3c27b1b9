package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// AddHistory implements driver.Backend.
func (s *Store) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.histories.Add(s.now(), name, text, keep)
}

// History implements driver.Backend.
func (s *Store) History(ctx context.Context, name string) ([]driver.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.histories.Read(s.now(), name)
}

// WhyMissing implements driver.Backend. A Store loses no record.
func (s *Store) WhyMissing(context.Context, string, time.Duration) (driver.Cause, error) {
	return driver.CauseUnknown, nil
}
