// Package zklock keeps locks in ZooKeeper (3.5.3 or later; 3.4 without containers): exclusive and
// shared locks, semaphores and latches. They share one queue with Apache Curator's recipes.
//
//	backend, err := zklock.New(zklock.Config{Servers: []string{"zk1", "zk2", "zk3"}, Root: "/locks"})
//	client, err := holdfast.New(ctx, backend, nil)
//
// A name is a folder below the root. Each holder and each waiter has an ephemeral, sequential node
// in the folder, which ZooKeeper deletes with the session. The lowest node has the lock; every
// other contender watches the node in front of its own. Mutex, RWMutex and Semaphore have the nodes
// of Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2. So Java
// and Go exclude each other on one path and wait in one queue. Holdfast ignores children with other
// names.
//
// # Sessions and trust
//
// A client is one ZooKeeper session. T is the session's timeout as the servers granted it, by
// default between 4 and 40 s. The locks of a dead client are free T after its last message, or up
// to a tick later.
//
// A living client trusts its leases for less. Only the leader of an ensemble ends sessions, and the
// other servers report their clients to it only when it pings them. T counts at least from the
// newest request that must have reached the leader. In normal operation that request is at most 2/5
// of T old. So Client.TTL is 3/5 of T, counted from each exchange. A holder that is cut off knows
// that it lost its lock before another client can have it. The client sends the leader a request
// every T/16.
//
// The client itself deletes a single lease (see holdfast.MaxHold) or a place in the queue that it
// has not renewed for T. At Close it deletes everything.
//
// # How far tokens reach
//
// A token is the number of the transaction (czxid) that created the contender's node. It is larger
// than every earlier token of the whole ensemble: across releases, expiry, breaks, restarts and
// leader changes, and when a folder is deleted and created again. It goes back only if the
// ensemble's data is wiped, or restored from an older backup.
//
// # What makes it unsafe
//
//   - A minSessionTimeout below two ticks: the calculation above is then wrong.
//   - Deleting or creating nodes in a lock's folder by hand; zkCli's deleteall of a folder in use.
//   - Restoring a backup, or starting with an empty data folder, while clients hold locks.
//   - kazoo's own Lock on a path with Curator's: neither respects the other (holdfast respects
//     both). docs/zookeeper.md has a kazoo class that works.
//
// A folder's sequence numbers end at 2147483647, and then every implementation fails. Holdfast
// refuses requests shortly before that (driver.ErrRefused), until the folder has been empty and
// ZooKeeper counts from zero again.
package zklock
