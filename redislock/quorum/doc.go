// Package quorum keeps mutexes and read/write locks on a majority of several independent Redis servers (7.0 or
// later), which know nothing of each other. Any minority of them may be down, frozen, cut off or empty, and
// locks are taken, kept and handed over all the same.
//
//	servers := []quorum.Server{{Name: "r1:6379", Dial: func() (redislock.Conn, error) { return rueidisconn.Dial("redis://r1:6379") }}, ...}
//	client, err := holdfast.New(ctx, quorum.New(servers, nil), nil)
//
// A new deployment has to be declared so once, by [Backend.Declare] or "holdfast init"; else it begins to grant after a
// quarantine.
//
// # How it works
//
// The idea is Redlock's ("Distributed Locks with Redis", redis.io): a lock is held by whoever has been granted a lease of it
// by more than half of the servers; two majorities have a server in common, and that grants it to one. What that
// document leaves open, and Martin Kleppmann's "How to do distributed locking" (2016) objects to, is made up for as Paxos and
// Raft do it, by what a majority has to know before anybody acts on it:
//
//   - Requests go to the servers at the same time, under the same id, so that asking again takes nothing twice. A lease is
//     counted from before the first request of the exchange in which a majority proved it was sent, renewals and
//     hand-overs included; package holdfast takes off its margin on top.
//   - Each server keeps its own line, hands over on its own and pushes, as package redislock does. A release
//     goes to all of them; the next in line is told by each.
//   - The votes may split. Whoever lacks a majority claims the other servers; who holds one of those and lacks a
//     majority, too, gives it up in an orderly way if the claimant comes first: by the first server of the name's order that it
//     has. Nobody retries at random. Places in line are set right by the first server's line, so that it is the same
//     everywhere.
//   - Fencing tokens: every server gives larger and larger ones. The token T of a grant is one that a majority has given
//     or has been raised to, and nobody is told T before. A later grant has a majority as well, at least one
//     of whose servers knows T, and gives more; and since all of them must agree, the later token is larger. Mostly the
//     client proposes the token, near the servers' clocks, so that they agree at once.
//   - A server that has lost what it knew would vote as if nothing had been. So it has no vote for a quarantine, which is as
//     long as the longest lease: by then all that it may have forgotten has run out, and its clock, from which tokens start, has
//     passed every token that it may have known. The record of its birth holds the id under which
//     it replicates, which is new after every start and after it has been a replica; each script compares the two.
//     It does not matter whether the data came back, how old they are, or how often they are forced to the disk.
//   - A server whose clock was set decides by a wrong time, so it stays out as if it had lost its data. Every answer and every push tells
//     the server's clock. Who has seen it before knows where it must be; who is new compares the clocks with each other and with what the
//     servers have on record of how they compared: those that still agree, if they are a majority, are right. See clocks.go.
//   - Renewals go to all servers and count when a majority has renewed. Servers that lack the grant, because they
//     were away, are asked for it again; so it is soon held by all, and the next failure finds it on more than a bare
//     majority.
//
// # What it relies on
//
//   - All clients name the same servers, by the same names, and the same quarantine; the servers have both on record and refuse
//     others. Each name leads to one server for good, no two to the same one.
//   - The servers' clocks run at the same speed as the clients', but for the margin of package holdfast (a tenth of the TTL). Those of a
//     minority may be set at any time; those of a majority may not be set at the same time, and none forth and back again within a
//     few seconds while nobody asks the server anything. A step of less than a fortieth of the shortest TTL, or than what an
//     exchange takes, is not noticed; it is for the margin.
//   - For tokens to grow although servers lose data: the clocks of the servers differ by less than three quarters of the quarantine.
//   - The servers fail independently, and no replica takes over one: two servers must not cast one vote. If one has a replica, its
//     repl-backlog-ttl is not shorter than the quarantine.
//   - Nothing is evicted (maxmemory-policy noeviction), and nobody deletes or writes the keys by hand, but by FLUSHALL or FLUSHDB, nor uses DEBUG.
//   - A minimum hold, and what is kept after a release, is not renewed: it lasts while fewer than a majority of the servers
//     have lost their data since.
//   - The network may delay, lose and reorder at will. A process may be paused at will: what it does after its lease is over is for
//     the resource to refuse, by the token.
//
// # What it does not keep
//
// Semaphores and latches. Two majorities have a server in common, but of three servers with a limit of two, three clients may
// have two votes each. They are refused with ErrInvalid.
package quorum
