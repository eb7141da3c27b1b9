package memlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// entry is an entry of a history, with when it was added.
type entry struct {
	text string
	at   time.Duration
}

// AddHistory implements driver.Backend.
func (s *Store) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOldHistories()
	list := s.histories[name]
	if slices.ContainsFunc(list, func(e entry) bool { return e.text == text }) {
		return nil
	}
	list = append(list, entry{text, s.now()})
	s.histories[name] = slices.Clone(list[max(0, len(list)-keep):])
	return nil
}

// dropOldHistories drops the histories to which nothing was added for HistoryLife. Called with s.mu
// held.
func (s *Store) dropOldHistories() {
	now := s.now()
	for name, list := range s.histories {
		if now-list[len(list)-1].at > driver.HistoryLife {
			delete(s.histories, name)
		}
	}
}

// History implements driver.Backend.
func (s *Store) History(ctx context.Context, name string) ([]driver.Entry, error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOldHistories()
	now := s.now()
	var entries []driver.Entry
	for _, e := range s.histories[name] {
		entries = append(entries, driver.Entry{Text: e.text, Age: max(0, now-e.at)})
	}
	return entries, nil
}

// WhyMissing implements driver.Backend. A Store loses no record.
func (s *Store) WhyMissing(context.Context, string, time.Duration) (driver.Cause, error) {
	return driver.CauseUnknown, nil
}
