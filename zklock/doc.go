// Package zklock keeps locks in ZooKeeper (3.5.3 or later; 3.4 without containers): exclusive,
// shared, semaphores and latches, in one line with Apache Curator's recipes.
//
//	backend, err := zklock.New(zklock.Config{Servers: []string{"zk1", "zk2", "zk3"}, Root: "/locks"})
//	client, err := holdfast.New(ctx, backend, nil)
//
// A name is a folder below the root, and each who holds it or waits for it has an ephemeral,
// sequential node there, which ZooKeeper deletes with the session. The lowest has the lock;
// everybody else watches the one in front. Mutex, RWMutex and Semaphore have the nodes of
// Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2, so Java
// and Go exclude each other on one path and stand in one line. Children with other names are left alone.
//
// # Sessions and trust
//
// A client is one ZooKeeper session, and its TTL is the session's timeout, T: it is what the
// servers grant, by default between 4 and 40 s. A dead client's locks come free T after its last sign of life,
// and up to a tick later. A living client trusts its leases for less: the leader of an
// ensemble, which alone ends sessions, hears of clients of the other servers only with the next of its pings to
// them. What is certain is that T counts from the newest request that the leader must have
// heard of; that is up to 2/5 of T old while all is well. So Client.TTL is 3/5 of T, counted from
// each exchange, and a holder that is cut off knows that it lost its lock before another can
// have it. The client asks the leader for a sign every T/16.
//
// A single lease that is not renewed any more (see holdfast.MaxHold), or a place in line, is
// deleted by its own client after T; so is everything at Close.
//
// # How far tokens reach
//
// A token is the number of the transaction (czxid) that created the contender's node: larger
// than every earlier one of the whole ensemble, over releases, expiry, breaks, restarts, leader
// changes, and when the folder is deleted and made again. It goes back only if the
// ensemble's data is wiped, or restored from an older backup.
//
// # What makes it unsafe
//
//   - A minSessionTimeout that is set below two ticks: then the reckoning above is wrong.
//   - Deleting or creating nodes in a lock's folder by hand; zkCli's deleteall of a folder in use.
//   - Restoring a backup, or starting with an empty data folder, while clients hold locks.
//   - kazoo's own Lock on a path with Curator's: neither respects the other, whatever we do
//     (we respect both); see docs/zookeeper.md for a kazoo class that works.
//
// A folder's sequence numbers end at 2147483647, and then every implementation goes wrong. Short of
// that, requests are refused (driver.ErrRefused) until the folder has been empty and counts anew.
package zklock
