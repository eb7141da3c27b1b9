package driver

import (
	"context"
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
	// Errors: ErrRetry; ErrInvalid, also for a tx of an unknown type; ErrKind, ErrDamaged: tx can go
	// on; ErrUnavailable, ErrRefused: roll tx back.
	AcquireInTx(ctx context.Context, tx any, req *Request, ttl time.Duration) (Reply, error)
}
