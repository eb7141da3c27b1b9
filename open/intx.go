package open

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// AcquireInTx implements [driver.TxBackend]. It returns ErrInvalid for stores that are none.
func (s *Store) AcquireInTx(ctx context.Context, tx any, req *driver.Request, ttl time.Duration) (driver.Reply, error) {
	return driver.AcquireInTx(ctx, s.Backend, tx, req, ttl)
}
