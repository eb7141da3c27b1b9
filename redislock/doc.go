// Package redislock keeps locks in Redis (6.2 or later, or a compatible server): exclusive,
// shared, semaphores and latches, with a line in order of arrival, direct hand-over and fencing tokens. It may be one
// server, a primary that sentinels watch over, or a Cluster.
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
//   - after a failover: always over what the new primary knows of the name, as when the clock
//     is set back. Over grants that it does not know: if its clock, when it grants, shows more
//     than the old one's did at the last of them; that is, if it is behind by less than
//     the time between the two. With [Config].WaitReplicas nobody was told of a grant that the
//     replicas counted do not know, so clocks do not matter if one of those is promoted;
//   - not between two primaries that grant at the same time, because the old one does not know
//     yet that it has been replaced: each of its tokens is the time of its own clock, and a
//     later one of the old primary may be larger than one of the new. With WaitReplicas for all
//     replicas the old one grants nothing.
//
// # What makes it unsafe
//
// One Redis server, or one primary of a Cluster, is one point of truth, and it must not forget:
//
//   - A maxmemory-policy that evicts (anything but noeviction) may evict a lock that is held;
//     then two hold it. Tokens still grow, so a resource that checks them is safe.
//   - A server that restarts without its data (no appendonly file, or an old one) has
//     forgotten who holds what: keep it down for longer than the longest TTL, or use
//     "appendonly yes" with "appendfsync always". With "everysec" the last second is lost.
//   - Replication is asynchronous: after a failover the new primary may not know the last
//     grants and renewals. With [Config].WaitReplicas they do not count before replicas have
//     confirmed them; docs/guarantees.md says how far that goes. Without it the old primary
//     may go on granting until it learns of the failover.
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
//	  +evalsha +eval +publish +pubsub|numsub +subscribe +unsubscribe +hello +ping +select
//	  +get +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby
//	  +zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex
//
// In a Cluster (of Redis 7), where command is for go-redis only:
//
//	ACL SETUSER holdfast on >PASSWORD resetkeys ~hf:* resetchannels &hf:{*}:s:* -@all
//	  +evalsha +eval +spublish +pubsub|shardnumsub +ssubscribe +sunsubscribe +hello +ping +asking +cluster|slots +cluster|shards +command
//	  +get +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby
//	  +zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex
//
// With sentinels: +role at the servers beside the first rule, and at the sentinels themselves, if they
// ask for credentials:
//
//	ACL SETUSER watcher on >PASSWORD resetchannels &* -@all +hello +ping +subscribe +unsubscribe +punsubscribe
//	  +sentinel|get-master-addr-by-name +sentinel|sentinels
//
// With WaitReplicas also +wait.
//
// # Cluster
//
// All keys of a name are in one hash slot, one of 64, so that every request is one script at one server.
// A session listens on a sharded channel for each of the 64 in which it waits, while it waits;
// before Redis 7, where there are none, on one channel that all servers pass on, and then a waiter whose
// connection is gone is noticed only when its place in line runs out.
//
// A slot may move to another server while locks in it are held and waited for. Until it has
// arrived, exclusive grants are renewed and scripts of one key run; what needs several keys waits (the servers answer TRYAGAIN before
// anything is done), up to two seconds for each exchange, and fails with ErrUnavailable then. Nothing is lost by
// that. A waiter that is next in line at the very moment of the move may lose its place; it is told at once,
// and queues again.
package redislock
