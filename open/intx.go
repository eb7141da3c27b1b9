package open

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// AcquireInTx implements [driver.TxBackend]. It returns ErrInvalid for stores that are none.
func (s *Store) AcquireInTx(ctx context.Context, tx any, req *driver.Request, ttl time.Duration) (driver.Reply, error) {
	if b, ok := s.Backend.(driver.TxBackend); ok {
		return b.AcquireInTx(ctx, tx, req, ttl)
	}
	return driver.Reply{}, fmt.Errorf("%w use: this store (%s) has no transactions of its callers", driver.ErrInvalid,
		s.Name())
}
