// Package quorum keeps mutexes and read/write locks on a majority of several independent Redis
// servers (7.0 or later), which know nothing of each other. Any minority of them may be down,
// frozen, cut off or empty: locks are still taken, kept and handed over.
//
//	dial := func(ctx context.Context) (redislock.Conn, error) {
//		return rueidisconn.DialContext(ctx, "redis://r1:6379", nil)
//	}
//	servers := []quorum.Server{{Name: "r1:6379", Dial: dial}, ...}
//	client, err := holdfast.New(ctx, quorum.New(servers, nil), nil)
//
// Package rueidisconn has an example that runs.
//
// A new deployment must be declared once, by [Backend.Declare] or "holdfast init". Otherwise it
// begins to grant after a quarantine.
//
// # How it works
//
// The idea is Redlock's ("Distributed Locks with Redis", redis.io): the holder of a lock has a
// lease of it from more than half of the servers. Two majorities have a server in common, and that
// server grants the lock to one client. Redlock leaves problems open, to which Martin Kleppmann
// objects in "How to do distributed locking" (2016). This package solves them as Paxos and Raft do:
// it acts only on what a majority knows.
//
//   - Requests go to all servers at the same time under the same ID, so a repeated request takes
//     nothing twice. A lease counts from before the first request of the exchange in which a
//     majority proved it. That holds for renewals and hand-overs too. Package holdfast also
//     subtracts its margin.
//   - Each server keeps its own queue, hands over by itself and pushes, as in package redislock. A
//     release goes to all servers, and each of them pushes to the next waiter.
//   - The votes may split. A contender without a majority claims the other servers. A holder of
//     such a server that has no majority either yields it if the claimant ranks higher: by the
//     first server that it has, in the name's order of servers. No client retries at random. The
//     queue of the first server in that order determines the places at all others.
//   - A request that does not wait tells the servers its minimum hold in a second exchange, when a
//     majority has granted it. A majority has recorded it before the client hears of the grant. So a
//     request without a majority leaves nothing behind that outlives its lease.
//   - A holder with a majority claims the servers that it lacks, and so does a released request whose
//     name is kept. Then a server itself ends a grant of which only the minimum hold is left: no
//     majority kept that any more, or none ever did. But the claim may come late. So it has a token
//     that every later grant exceeds: the clocks of a majority had passed it when that proved the
//     claimant's grant. A grant that was released under a larger token stays. If a reader claims, a
//     writer's grant becomes a reader's.
//   - Fencing tokens: every server gives larger and larger tokens. A majority has given the token T
//     of a grant, or raised the grant to it, before the client learns T. A later grant has a
//     majority as well. One of its servers knows T and gives a larger token, and all of them must
//     agree, so the later token is larger. Mostly the client proposes the token, near the servers'
//     clocks, so that they agree at once.
//   - A grant may take a block of tokens. Each server gives it a token that is at least the block's
//     length above the last one there, and later only raises that. A request that yields keeps the
//     length. So the whole block is above every earlier token T: a server that T's majority and the
//     grant's have in common knew T before T's grant ended there, and only then made this grant. It
//     gave at least T plus the length, and the token that all agree on is not smaller. Servers whose
//     last tokens are equal also agree at once if a block exceeds what the client proposes.
//   - A request may give a server back and go on: a TryLock that makes several tries, or a writer that
//     becomes a reader. Such a withdrawal names the largest token that it ends, and from then on only
//     a grant with a larger token counts. A smaller one is raised first. So a withdrawal that arrives
//     late, perhaps from a connection that was closed, does no harm.
//   - A server that has lost its data could vote for a second holder. So it has no vote for a
//     quarantine, which is as long as the longest lease. By then everything that it may have
//     forgotten has expired, and its clock, from which tokens start, has passed every token that it
//     may have known, by a block's length at least. Its birth record holds its replication ID,
//     which is new after every start and after the server was a replica. Each script compares the
//     two. So it does not matter whether the data came back, how old they are, or how often they are
//     forced to the disk.
//   - A server whose clock was set decides by a wrong time, so it has no vote either, as if it had
//     lost its data. Every answer and every push contains the server's clock. A process that saw
//     the clock before knows where it must be. A new process compares the clocks with each other
//     and with the recorded comparison: those that still agree are right if they are a majority.
//     See clocks.go.
//   - Renewals go to all servers and count when a majority has renewed. Servers without the grant,
//     because they were away, are asked for it again. So soon all servers have it, and the next
//     failure finds more than a bare majority.
//   - A lease may be shorter than the TTL, and each renewal may ask for another length. An exchange
//     proves a lease only by servers that keep it for as long as the exchange asked. Servers that are
//     asked again get the rest of the lease, and none is asked when the lease may be over. After its
//     end a majority counts only if all its servers have had the grant since it was proved. See
//     lease.go.
//
// # What it relies on
//
//   - All clients name the same servers by the same names, and use the same quarantine. The servers
//     record both and refuse other clients. Each name always leads to one server, and no two names
//     to the same one.
//   - The servers' clocks run at the same speed as the clients', except for the margin of package
//     holdfast (a tenth of the lease). A minority of the clocks may be set at any time. A majority
//     must not be set at the same time, and no clock forth and back within a few seconds without a
//     request to its server. A process does not notice a step that is smaller than a fortieth of its
//     shortest TTL, or than the time of an exchange: the margin covers it. The margin of a lease that
//     is shorter than the TTL may be smaller than that. So the servers keep such a lease for a fortieth
//     of the TTL longer than the client counts on.
//   - No client's TTL is more than four times as long as another's, nor longer than that of a client
//     with leases shorter than its TTL. Otherwise it may overlook a step that their margins do not
//     cover.
//   - For tokens that grow although servers lose data: the clocks of the servers differ by less
//     than three quarters of the quarantine. Clients take no more tokens than microseconds pass, except
//     for moments: package holdfast asks for no more than it can use. Otherwise tokens run ahead of
//     the clocks. They still grow, until a server that lost its data counts from its clock again.
//   - The servers fail independently, and no replica is promoted in place of one: two servers must
//     not cast one vote. If a server has a replica, its repl-backlog-ttl is not shorter than the
//     quarantine.
//   - Nothing is evicted (maxmemory-policy noeviction). No other program deletes or writes the
//     keys, except by FLUSHALL or FLUSHDB, nor uses DEBUG.
//   - Nothing renews a minimum hold, or a name kept after its release. It lasts while fewer than a
//     majority of the servers have lost their data.
//   - The network may delay, lose and reorder messages. A process may be paused at any time: the
//     resource must refuse, by the token, what it does after its lease is over.
//
// # What it does not keep
//
// Semaphores and latches. Two majorities have a server in common. But with three servers and a
// limit of two, three clients may have two votes each. They are refused with ErrInvalid.
package quorum
