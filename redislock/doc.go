// Package redislock keeps locks in Redis 6.2 or later, or a compatible server. It has exclusive and
// shared locks, semaphores and latches, with a queue in order of arrival, hand-over by a push, and
// fencing tokens. The store may be one server, a primary behind sentinels, or a Cluster.
//
//	conn, err := rueidisconn.Dial("redis://localhost:6379")
//	client, err := holdfast.New(ctx, redislock.New(conn, nil), nil)
//
// Packages goredisconn and rueidisconn, which connect the client libraries, have examples that run.
//
// Every request is one script, so it is one atomic step at the server. Only the server's clock
// decides when a lease has expired. A release hands the lock to the first waiter in the same step,
// and publishes the grant on the channel of the waiter's session. So the waiter starts without
// another exchange.
//
// # How far tokens reach
//
// A token is the server's time in microseconds, or one more than the name's last token if that is
// larger. (docs/guarantees.md has the rule for grants that take several tokens.) So the tokens of a
// name grow:
//
//   - over releases, expiry and breaks: always, whatever the clock does;
//   - over a restart, a crash and FLUSHALL, with or without the data: if the server's clock was not
//     set back by more than the outage took;
//   - over a clock that is set back: always while the name is in use or was in use within the last
//     half minute. After that, the floor protects it: a number, kept for each of 64 shards of names,
//     that all new tokens exceed. The floor fails only if three things meet: the clock was set back
//     by more than a minute; the name was then unused until the clock came within ten seconds of the
//     floor; and no other name of the shard was first used in that time;
//   - after a failover: always over what the new primary knows of the name, as after a clock that
//     is set back. Over grants that it does not know: if its clock at its first grant is past the
//     old primary's clock at the last of those. So its clock must be behind by less than the time
//     between the two grants. With [Config].WaitReplicas no caller received a grant that the
//     counted replicas do not know. If one of these replicas is promoted, clocks do not matter;
//   - not between two primaries that grant at the same time, because the old one does not know that
//     it was replaced. Each takes its tokens from its own clock, so a later token of the old
//     primary may be larger than one of the new primary. If WaitReplicas is the number of all
//     replicas, the old primary grants nothing.
//
// # What makes it unsafe
//
// One Redis server, or one primary of a Cluster, is the only record of its locks. It must not
// forget:
//
//   - A maxmemory-policy other than noeviction may evict a lock that is held. Then two clients hold
//     it. Tokens still grow, so a resource that checks them is safe.
//   - A server that restarts without its data (no appendonly file, or an old one) has forgotten all
//     grants. Keep it down for longer than the longest TTL, or use "appendonly yes" with
//     "appendfsync always". With "everysec" the last second is lost.
//   - Replication is asynchronous: after a failover the new primary may not know the last grants
//     and renewals. With [Config].WaitReplicas they count only after replicas have confirmed them;
//     docs/guarantees.md explains the limits. Without WaitReplicas the old primary may go on
//     granting until it learns of the failover.
//   - A clock that jumps forward ends leases early at the server while clients still trust them. A
//     clock that jumps back only makes leases last longer. Let the clock be slewed, not stepped.
//   - DEL, FLUSHALL, FLUSHDB, and writes to the keys by other programs.
//
// In all of these cases the fencing token protects the resource.
//
// # Permissions
//
// A user needs these permissions, for the default prefix (select only if the database is not 0):
//
//	ACL SETUSER holdfast on >PASSWORD resetkeys ~hf:* resetchannels &hf:s:* -@all
//	  +evalsha +eval +publish +pubsub|numsub +subscribe +unsubscribe +hello +ping +select
//	  +get +mget +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby
//	  +zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex
//
// In a Cluster of Redis 7 (only go-redis needs command):
//
//	ACL SETUSER holdfast on >PASSWORD resetkeys ~hf:* resetchannels &hf:{*}:s:* -@all
//	  +evalsha +eval +spublish +pubsub|shardnumsub +ssubscribe +sunsubscribe +hello +ping +asking
//	  +cluster|slots +cluster|shards +command
//	  +get +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby
//	  +zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex
//
// With sentinels the servers also need +role. Sentinels that ask for credentials need this user:
//
//	ACL SETUSER watcher on >PASSWORD resetchannels &* -@all +hello +ping +subscribe +unsubscribe +punsubscribe
//	  +sentinel|get-master-addr-by-name +sentinel|sentinels
//
// WaitReplicas also needs +wait. With +info WhyMissing can say why a record is gone; without it the
// cause is unknown. With +client|tracking watchers learn of changes at once; go-redis also needs
// +client|id and the channel __redis__:invalidate. Histories need no further permission.
//
// # Cluster
//
// All keys of a name are in one hash slot of 64, so every request is one script at one server.
// While a session waits in a slot, it subscribes to a sharded channel there. Servers before Redis 7
// have no sharded channels. There the session uses one channel that all servers forward. A waiter
// whose connection is gone is then noticed only when its place in the queue expires.
//
// A slot may move to another server while its locks have holders and waiters. During the move,
// exclusive grants are renewed and scripts of one key run. Scripts of several keys wait while one of
// them is missing: the servers answer TRYAGAIN before they do anything. Each exchange waits for up
// to two seconds, then fails with ErrUnavailable. Nothing is lost by that. A waiter that is next in
// the queue at the moment of the move may lose its place. It learns that at once and queues again.
package redislock
