// Package redisson keeps locks in the format of Redisson, a library for Java. So Go and Java
// programs that use the same Redis exclude each other.
//
//	conn, err := rueidisconn.Dial("redis://localhost:6379")
//	client, err := holdfast.New(ctx, redisson.New(conn, nil), nil)
//
// A Mutex is an RLock of the same name, an RWMutex an RReadWriteLock, a Semaphore an
// RPermitExpirableSemaphore, a Latch an RCountDownLatch. With [Config] a Mutex is an RFencedLock or an
// RFairLock, and a Semaphore an RSemaphore. A name must have one kind in Go and in Java.
//
// # How it works
//
// The store keeps its own record of each name, as package redislock does: the queue of Go's waiters,
// fencing tokens, and texts for people. Beside it are Redisson's keys, which are the name itself and
// those that Redisson makes of it. Every script changes both in one step. A lock is granted only if
// Redisson's keys allow it. A grant that Redisson's keys no longer have has ended. The holder learns of
// it at its next renewal, within a third of its TTL. Another client may have the lock before that.
//
// The end of a lock is announced on Redisson's channels, in a Cluster with PUBLISH and SPUBLISH. A
// session that waits listens there. It also listens for the locks that it has held for one or two
// seconds. So it hears at once of a forceUnlock in Java, and asks the store whether it has lost the
// lock. That costs each such lock a subscription and a renewal; shorter holds cost nothing. Nothing is
// announced when a key is deleted, and nothing to the holder when an RFairLock is forced open.
//
// # Limits of the format
//
//   - RLock has no order of arrival: a client in Java may overtake Go's waiters, which
//     are in order among themselves. Go's waiters that hand a lock or permits on among themselves leave it to
//     clients in Java for 25 ms now and then: every fourth time, and more seldom while none takes it. Several
//     sessions of one Backend count as one, and may hide a client in Java that waits: use one session.
//   - RLock has no fencing token. A grant of ours has one. It is larger than all earlier ones of ours,
//     and than those of an RFencedLock of that name.
//   - An RReadWriteLock does not prefer writers: readers in Java enter while a writer waits. In Go
//     they do not.
//   - The limit of a semaphore is the number of its permits in Redisson, held or free. The first
//     request sets it, as trySetPermits does, and it stays.
//   - RSemaphore has no owners. Permits of a Go holder that died are given back by the next request in
//     Go, for 30 days. Those of a client in Java are not, and nobody knows the limit.
//   - RPermitExpirableSemaphore compares leases with the clock of the client in Java. A clock that is
//     ahead by more than what is left of a lease gives the permit away. A clock that is behind makes
//     leases in Java end early.
//   - Each permit of an RPermitExpirableSemaphore is an element of a sorted set, which each renewal
//     writes. So a request may have 1000 permits at most.
//   - A latch and an idle semaphore look alike. SetLimit refuses what may be a latch with ErrKind: what no
//     client in Go has used as a semaphore for 30 days, and nobody in Java has a permit of.
//   - Redisson removes a latch at zero. A latch that nobody in Go had used until then does not exist.
//   - RFairLock has one queue for Go and Java, which relies on the clocks of the clients in Java: see
//     Config.Fair.
//   - A session listens to a channel for each name that it waits for or has held for a while, to 1000 at
//     most for those that it holds. They share the connection for requests with rueidisconn, and one of
//     their own with goredisconn; in a Cluster there is one for each primary.
//   - In a Cluster a name must have a hash tag that Redisson uses too: see [Check]. While the slot of a
//     name moves, the server refuses requests for the name, also renewals: a lease may end.
//
// List looks at every key of the servers, since Redisson has no index of its names: once for each
// listing, a thousand keys in one exchange. The tokens that it shows for Redisson's holders are numbers
// made of their IDs, unless the lock is an RFencedLock. Break takes them.
//
// # Permissions
//
// A user needs these permissions, for the default prefix (select only if the database is not 0). The
// names of locks are keys, so ~* may be narrowed to the names in use, which begin the keys, and
// ~hf:r:* ~{* ~redisson_*:
//
//	ACL SETUSER holdfast on >PASSWORD resetkeys ~* resetchannels &hf:r:s:* &redisson_* -@all
//	  +evalsha +eval +publish +pubsub|numsub +subscribe +unsubscribe +hello +ping +select
//	  +get +set +setrange +del +exists +pttl +pexpire +time +type +incrby +decr +scan
//	  +lindex +lpop +lpos +lrange +lrem +rpush
//	  +hget +hset +hdel +hexists +hincrby +hgetall +hlen +hscan
//	  +zadd +zrem +zcard +zcount +zrank +zscore +zrange +zrangebyscore
//
// In a Cluster (only go-redis needs command):
//
//	ACL SETUSER holdfast on >PASSWORD resetkeys ~* resetchannels &hf:r:{*}:s:* &redisson_* -@all
//	  +evalsha +eval +publish +spublish +pubsub|numsub +pubsub|shardnumsub +subscribe +unsubscribe
//	  +ssubscribe +sunsubscribe
//	  +hello +ping +asking +cluster|slots +cluster|shards +command
//	  +get +set +setrange +del +exists +pttl +pexpire +time +type +incrby +decr +scan
//	  +lindex +lpop +lpos +lrange +lrem +rpush
//	  +hget +hset +hdel +hexists +hincrby +hgetall +hlen +hscan
//	  +zadd +zrem +zcard +zcount +zrank +zscore +zrange +zrangebyscore
//
// Source: Redisson 4.7.0 and its changes since 3.24.1; docs/redisson.md has the support table.
package redisson
