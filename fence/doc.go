// Package fence lets a resource in an SQL database, or in Redis, refuse work under an old fencing
// token. Package fencehttp does so for a resource behind HTTP.
//
// No lock can stop a stale holder that was paused and writes when it continues. The resource can:
// it keeps the largest token it has seen and refuses smaller ones. [Begin] does this at the start
// of the caller's own transaction:
//
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	if err := fence.Begin(ctx, tx, fence.MySQL, "stock/42", lease.Token()); err != nil {
//		return err // errors.Is(err, fence.ErrStale): a newer holder has been here
//	}
//	// Read and write.
//	return tx.Commit()
//
// Every transaction on the resource must begin with it, even one that only reads for a later write.
// A check at the write alone is too late: an older holder may write between the newer one's read
// and write, and one of the two updates is lost.
//
// [BeginPgx] is the same for transactions of pgx. [Redis] guards keys in Redis.
//
// The table hf_fence, which [Schema] creates, keeps the token, and one statement raises it. The
// package imports no SQL driver; it uses the caller's transaction.
package fence
