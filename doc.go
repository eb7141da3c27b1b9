// Package holdfast gives programs on many machines locks over Redis, MySQL, MariaDB, PostgreSQL,
// ZooKeeper, SQLite or the memory of one process, with one API.
//
//	c, err := holdfast.New(ctx, backend, nil)
//	defer c.Close(ctx)
//
//	err = c.Mutex("order/42").Do(ctx, func(ctx context.Context) error { // ctx ends when the lock is lost
//		return charge(ctx, holdfast.Token(ctx))                     // the token guards the write
//	})
//
// Machines share no clock, so no single layer can guarantee a lock. Three layers share the work:
//
//   - The store never grants a name to a second client while it guarantees the lease of the first.
//   - The client stops trusting a lease before the store could give the name away: by default a
//     tenth of the lease duration earlier. It counts from when it sent the request that proved the
//     lease, on its own monotonic clock, and includes the time that the machine slept. It also stops
//     when the store reports that the grant has ended. Then the context of the lease is cancelled
//     with the cause [ErrLost], and Release and Do report the loss.
//   - The resource that the lock guards can refuse a stale holder, for example one that was paused.
//     Every grant has a fencing token, larger than every earlier one of the name. A resource must
//     remember the highest token it has seen, reads included, and refuse lower ones. Only the
//     resource itself can refuse; no lock can do it in its place.
//
// A holder has a [Lease]. The lease renews itself in the background until it is released or lost;
// one exchange renews all leases of a [Client]. Waiters queue at the store in order of arrival. A
// release hands the lock to the next one; waiters that died are skipped, and a dead holder's lease
// expires. Before the queue is served, calls of one client may pass a lock on among themselves for
// some milliseconds. The context of a wait bounds the wait only, never the lease.
//
// [Mutex], [RWMutex], [Semaphore], [Latch], [Election] and [LockAll] (several locks at once) are
// values without state: the state is in the lease and at the store.
//
// Stores are packages of their own (memlock, redislock, sqllock, zklock) and do not import this
// one; package driver is the contract between them. To read the code, go on with lease.go,
// mutex.go, acquire.go, await.go, cohort.go, watch.go, keepalive.go, then driver/driver.go and memlock.
package holdfast
