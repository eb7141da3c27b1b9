// Package zk is a ZooKeeper client with what a lock needs and no more.
//
// It differs from general clients in what it promises about sessions and outcomes:
//
//   - A [Session] is one ZooKeeper session for life. When that has ended it is over; it never
//     becomes another one, so a request issued in an outage never acts in a later session.
//   - Every call ends when its context does, whatever the network and the servers do.
//   - An error says whether the request may have acted: see [ErrConnectionLoss] and [ErrNotSent].
//   - [Session.Lost] is closed by the client's own clock, before the servers could give away
//     what the session holds, not when a server is reached again.
//
// # What proves that a session lives
//
// Servers count a session's timeout from the last packet that they got from it, but the one
// that counts is the leader, and a follower tells it who was heard of only with its answer to
// the leader's ping, every half tick. It answers clients' pings and reads by itself,
// and goes on doing so for syncLimit ticks after it was cut off from the leader. Therefore an
// answered ping proves nothing. What does is an answer that came from the leader (to
// a write, or to sync, which is what this client pings with): whatever the server had
// heard a few leader's pings before, the leader had heard too. [Session.Left] counts from the send
// time of the newest request of which that is true. It assumes that the timeout is at least two ticks,
// which is ZooKeeper's default minimum. A leader that was deposed and does not know it yet may answer
// a sync for about a tick longer than its successor waited before it gave every session a new timeout;
// the time that an election takes makes up for that.
//
// The protocol is that of zookeeper.jute and of the constants in org.apache.zookeeper.ZooDefs;
// what calls and watches mean is described in ZooKeeper's Programmer's Guide, the settings
// of servers in its Administrator's Guide.
package zk
