package driver

import (
	"context"
	"fmt"
	"time"
)

// A TxBackend is a Backend in a database, which can grant in a transaction of the application.
type TxBackend interface {
	Backend

	// AcquireInTx asks once for an exclusive grant, in the application's transaction tx on the
	// store's database. The grant exists if and only if tx is committed, and belongs to no session:
	// Adopt makes it that of a session. It expires ttl after this call, however long tx stays open.
	// Not granted: Token is 0, nothing was written, and tx can go on. AcquireInTx waits for no other
	// transaction: one in the way means not granted.
	//
	// The application must not tell anybody of the grant before the commit. Until tx ends, other
	// requests for the name may fail with ErrUnavailable.
	//
	// After an error the caller rolls tx back: a row may be locked in it. Errors: ErrRetry; ErrInvalid,
	// also for a tx of an unknown type; ErrKind, ErrDamaged, ErrUnavailable, ErrUncertain, ErrRefused.
	AcquireInTx(ctx context.Context, tx any, req *Request, ttl time.Duration) (Reply, error)
}

// AcquireInTx is b.AcquireInTx, or ErrInvalid if b is no TxBackend. A Backend that contains another one
// calls it.
func AcquireInTx(ctx context.Context, b Backend, tx any, req *Request, ttl time.Duration) (Reply, error) {
	t, ok := b.(TxBackend)
	if !ok {
		return Reply{}, fmt.Errorf("%w use: this store (%s) has no transactions of its callers", ErrInvalid, b.Name())
	}
	return t.AcquireInTx(ctx, tx, req, ttl)
}
