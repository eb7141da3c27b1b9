// Package holdfast gives programs on many machines locks that hold: over Redis, MySQL, MariaDB,
// PostgreSQL, ZooKeeper, SQLite or the memory of one process, with one API.
//
//	c, err := holdfast.New(ctx, backend, nil)
//	defer c.Close(ctx)
//
//	err = c.Mutex("order/42").Do(ctx, func(ctx context.Context) error { // ctx ends when the lock is lost
//		return charge(ctx, holdfast.Token(ctx))                     // the token guards the write
//	})
//
// A distributed lock is a promise about time made by machines that share no clock, so it
// can be kept only in three layers, and holdfast has all three:
//
//   - The store never grants a name twice while it guarantees a lease.
//   - The client stops trusting a lease before the store could give it away: it counts
//     from when the proving request was sent, on its own monotonic clock, sleep of the
//     machine included. When that time is over, or the store says that the grant is gone,
//     the lease ends, its context is cancelled with the cause [ErrLost], and Release
//     and Do report it.
//   - The resource that the lock guards can refuse a holder that was overtaken while it was
//     paused: every grant has a fencing token, larger than every earlier one of the name.
//     A resource must remember the highest token it has seen, reads included, and refuse
//     lower ones. No lock alone can do this for it.
//
// What is held is a [Lease]. It renews itself in the background until it is released or
// lost; all leases of a [Client] are renewed in one exchange. Who has to wait stands in
// a line at the store and is handed the lock by a push, in order of arrival; dead
// waiters are skipped, dead holders run out. The contexts of waits bound the waiting,
// never the holding.
//
// Besides [Mutex] there are [RWMutex], [Semaphore], [Latch], [Election], and [LockAll] for
// several at once. All of them are values without state: what is held is a lease.
//
// Stores are packages of their own (memlock, redislock, sqllock, zklock) and know nothing of this
// one; package driver is what they have in common. To read the code, go on with lease.go,
// mutex.go, await.go, watch.go, keepalive.go, then driver/driver.go and memlock.
package holdfast
