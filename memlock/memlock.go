// Package memlock is a store in the memory of one process. It is for applications' own tests, and
// is the shortest complete implementation of package driver.
//
// It is internal/rule behind a mutex. Each method lets time pass, applies one rule, and notifies
// the waiters to which the rule has granted; internal/waiters keeps their channels.
package memlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
	"github.com/holdfast-lock/holdfast/internal/waiters"
	"github.com/holdfast-lock/holdfast/internal/watchers"
)

// Store is a lock table in memory. Clients that are given the same Store exclude each
// other. It is safe for concurrent use, and works under testing/synctest.
type Store struct {
	mu        sync.Mutex
	now       func() time.Duration
	tokens    uint64 // one count for all names, so that the store need not remember idle names
	entries   map[string]*rule.Entry
	sessions  map[string]*session
	histories rule.Histories
	watchers  watchers.Table
}

var _ driver.Backend = (*Store)(nil)
var _ driver.Watcher = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	start := time.Now()
	return &Store{
		now:     func() time.Duration { return time.Since(start) },
		entries: map[string]*rule.Entry{}, sessions: map[string]*session{},
	}
}

// Name returns "memory".
func (s *Store) Name() string { return "memory" }

// Kinds implements driver.Backend: a Store keeps everything.
func (s *Store) Kinds() driver.Kinds { return driver.AllKinds() }

// Close does nothing; the garbage collector frees the store.
func (s *Store) Close() error { return nil }

// Open starts a session. It fails if ctx has ended or cfg is not valid.
func (s *Store) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &session{store: s, cfg: cfg, waiters: waiters.NewTable()}
	s.sessions[cfg.ID] = n
	return n, ctx.Err()
}

// Watch implements driver.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	return s.watchers.Watch(ctx, prefix, changed)
}

// do is step, and tells watchers that the entry may have changed.
func (s *Store) do(ctx context.Context, name string,
	f func(e *rule.Entry, now time.Duration) ([]rule.Grant, error)) error {
	defer s.watchers.Changed(name)
	return s.step(ctx, name, f)
}

// step runs f on the entry of name and notifies the waiters to which it granted.
func (s *Store) step(ctx context.Context, name string,
	f func(e *rule.Entry, now time.Duration) ([]rule.Grant, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	if e == nil {
		e = &rule.Entry{Mint: func(last uint64, n int) uint64 {
			s.tokens = max(s.tokens, last) + uint64(n)
			return s.tokens
		}}
		s.entries[name] = e
	}
	grants, err := f(e, s.now())
	for _, g := range grants {
		if n := s.sessions[g.Session]; n != nil && g.CallBack && n.cfg.Wanted != nil {
			n.cfg.Wanted(name, g.ID)
		} else if n != nil && !g.CallBack {
			n.waiters.Notify(g.ID, g.Token)
		}
	}
	if !e.Used() {
		delete(s.entries, name)
	}
	return err
}

// List implements driver.Backend.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	s.mu.Lock()
	names := slices.DeleteFunc(slices.Collect(maps.Keys(s.entries)), func(name string) bool {
		return !strings.HasPrefix(name, prefix) || name <= after
	})
	s.mu.Unlock()
	slices.Sort(names)
	var list []driver.Record
	for i := 0; i < len(names) && len(list) < limit; i++ {
		r, err := s.Inspect(ctx, names[i])
		if err != nil {
			return nil, err
		}
		if r.Kind != driver.Unused {
			list = append(list, r)
		}
	}
	return list, nil
}

// Inspect implements driver.Backend.
func (s *Store) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = s.step(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		grants := e.Advance(now)
		r = e.Record(now, name)
		return grants, nil
	})
	return r, err
}

// Break implements driver.Backend.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	return s.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		return e.Break(now, token)
	})
}

// RemoveLatch implements driver.Backend.
func (s *Store) RemoveLatch(ctx context.Context, name string) error {
	return s.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		return e.RemoveLatch(now)
	})
}

// SetLimit implements driver.Backend.
func (s *Store) SetLimit(ctx context.Context, name string, limit int) error {
	if err := driver.CheckLimit(limit); err != nil {
		return err
	}
	return s.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		return e.SetLimit(now, limit)
	})
}
