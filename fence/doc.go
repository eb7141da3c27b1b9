// Package fence makes a resource that lives in an SQL database refuse work under an old
// fencing token.
//
// No lock can stop a holder that was paused, was overtaken, and writes when it wakes. The
// resource can: it keeps the largest token it has seen and refuses smaller ones. [Begin] does
// so at the start of a transaction of the caller's own:
//
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	if err := fence.Begin(ctx, tx, fence.MySQL, "stock/42", lease.Token()); err != nil {
//		return err // errors.Is(err, fence.ErrStale): somebody newer has been here
//	}
//	// Read and write.
//	return tx.Commit()
//
// Every transaction on the resource begins so, those that only read for a later write
// included. A token that is compared at the write alone is too late: an older holder may
// write between the newer one's read and write, and one of the two updates is lost.
//
// The token is kept in the table hf_fence, which [Schema] creates, and is raised by one
// statement. The package imports no SQL driver; it uses the caller's transaction.
package fence
