package fencehttp

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/fence"
)

// SQL is a Store in the table hf_fence of a database (fence.Schema). If the handler writes to the
// same database, TxGuard is better: it commits both together.
type SQL struct {
	DB      *sql.DB
	Dialect fence.Dialect
}

// Raise implements Store, in a transaction of its own.
func (s *SQL) Raise(ctx context.Context, resource string, token uint64) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return failed(s.Dialect, err)
	}
	if err := fence.Begin(ctx, tx, s.Dialect, resource, token); err != nil {
		return err // it has rolled back
	}
	return failed(s.Dialect, tx.Commit())
}

// failed marks an error after which the whole transaction may run again.
func failed(d fence.Dialect, err error) error {
	if fence.Retryable(d, err) {
		return fmt.Errorf("%w: %w", fence.ErrRetry, err)
	}
	return err
}

// Memory is a Store in the memory of one process. It forgets every token when the process ends: a
// stale request that arrives after a restart is not refused. Use it only if the resource is as
// short-lived and is in this process alone.
type Memory struct {
	mu     sync.Mutex
	tokens map[string]uint64
}

// Raise implements Store.
func (m *Memory) Raise(_ context.Context, resource string, token uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen := m.tokens[resource]; token < seen {
		return fmt.Errorf("fence: %q: %w: %d is smaller than %d", resource, fence.ErrStale, token, seen)
	}
	if m.tokens == nil {
		m.tokens = map[string]uint64{}
	}
	m.tokens[resource] = token
	return nil
}
