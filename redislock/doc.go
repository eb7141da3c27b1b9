// Package redislock keeps locks in Redis (6.2 or later, or a compatible server): exclusive,
// shared, semaphores and latches, with a fair line, direct hand-over and fencing tokens.
//
//	conn, err := rueidisconn.Dial("redis://localhost:6379")
//	client, err := holdfast.New(ctx, redislock.New(conn, nil), nil)
//
// Every request is one script, that is one atomic step at the server, whose clock alone
// says when a lease has run out. A release hands the lock to the first in line within the
// same step and publishes that on the channel of the waiter's session, so that the waiter
// starts without asking.
//
// # How far tokens reach
//
// A token is the server's time in microseconds, or one more than the name's last token if
// that is larger. So the tokens of a name grow:
//
//   - over releases, expiry and breaks: always, whatever the clock does;
//   - over a restart, a crash and FLUSHALL, with or without the data: as long as the server's
//     clock has not been set back by more than the outage took;
//   - when the clock is set back: always while the name is in use or was within the last
//     half minute. After that the floor of tokens that is kept with each of 64 shards sees to it,
//     unless the clock was set back by more than a minute, the name was then left alone
//     for just so long that the clock comes within ten seconds of the floor again, and
//     nothing else in its shard was used anew meanwhile;
//   - after a failover: if the clocks of the two servers differ by less than the failover takes.
//
// # What makes it unsafe
//
// One Redis server is one point of truth, and it must not forget:
//
//   - A maxmemory-policy that evicts (anything but noeviction) may evict a lock that is held;
//     then two hold it. Tokens still grow, so a resource that checks them is safe.
//   - A server that restarts without its data (no appendonly file, or an old one) has
//     forgotten who holds what: keep it down for longer than the longest TTL, or use
//     "appendonly yes" with "appendfsync always". With "everysec" the last second is lost.
//   - Replication is asynchronous: after a failover the new master may not know the last
//     grants. WAIT narrows that and does not close it.
//   - A clock that jumps forward ends leases early at the server while clients still
//     count on them; one that jumps back only makes leases last longer. Let the clock be
//     slewed, not stepped.
//   - DEL, FLUSHALL, FLUSHDB, and writing to the keys by hand.
//
// In all of these the fencing token is what protects the resource.
//
// # Permissions
//
// This is all that a user needs, for the default prefix (select only if the database is not 0):
//
//	ACL SETUSER holdfast on >PASSWORD resetkeys ~hf:* resetchannels &hf:s:* -@all
//	  +evalsha +eval +publish +subscribe +unsubscribe +hello +ping +select
//	  +get +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hsetnx +hdel +hexists +hincrby
//	  +zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex
//
// # Cluster
//
// All keys of a name are in one slot, but the scripts that renew many names at once are
// not split by slot yet: use one server, or a primary with replicas.
package redislock
