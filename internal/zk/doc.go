// Package zk is a ZooKeeper client with what a lock needs.
//
// It differs from general clients in what it promises about sessions and outcomes:
//
//   - A [Session] is one ZooKeeper session. It never becomes another one, so a request issued in an
//     outage never acts in a later session.
//   - Every call ends when its context ends, whatever the network and the servers do.
//   - An error says whether the request may have acted: see [ErrConnectionLoss] and [ErrNotSent].
//   - [Session.Lost] is closed by the client's own clock, before the servers could give away what
//     the session holds. It does not wait until a server is reachable.
//
// # What proves that a session lives
//
// Servers count a session's timeout from the last packet that they received from it. But the leader
// decides. A follower reports its active sessions only in its answer to the leader's ping, every
// half tick. It answers clients' pings and reads by itself, and still does for syncLimit ticks
// after it was cut off from the leader. So an answered ping proves nothing.
//
// An answer that came from the leader is a proof: to a write, or to sync, with which this client
// pings. Everything that the server had received a few leader's pings before, the leader knew as
// well. [Session.Left] counts from the send time of the newest such request. It assumes that the
// timeout is at least two ticks, ZooKeeper's default minimum.
//
// A leader that does not know that it was deposed may still answer a sync. It does so for about a
// tick longer than its successor waits before it gives every session a new timeout. The time of the
// election makes up for that.
//
// The protocol is that of zookeeper.jute and of the constants in org.apache.zookeeper.ZooDefs.
// ZooKeeper's Programmer's Guide describes calls and watches, its Administrator's Guide the
// settings of servers.
package zk
