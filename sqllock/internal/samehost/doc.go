// Package samehost carries messages between processes of one user on one host, through datagram
// sockets. Package sqllock wakes waiters with it: a datagram takes some microseconds, where a wake-up
// by the SQL server takes a command and the time of several processes.
//
// A Server that has waiters listens on a socket. Its file is in a folder of this user alone, and has
// the Server's random ID as its name. A message that was sent is no proof that somebody reads it, and
// whoever reads it must judge it as one from any process of this user. What can go wrong, and what
// follows:
//
//   - No file, nobody listens, a full buffer (a stopped process takes some ten messages): Send
//     returns false, and the sender wakes the waiter through the SQL server. So it is for processes of
//     other hosts, of other users, and of containers with another folder.
//   - A message is lost: its sender was killed after its commit, or the answer to its commit was lost.
//     The receiver is told to look at the SQL server every Pause while it has waiters.
//   - A message comes twice, late, or for a request that has ended: package waiters ignores it, or
//     package sqllock gives the grant back.
//   - A process was killed: its file is left, and the kernel refuses messages to it. The next process
//     that sends there, or that begins to listen, removes the file. IDs are never reused.
//   - A cleaner has removed the file or the folder: the Server notices at its next wait, and listens
//     at a new one.
//   - Another user owns the folder, its path is too long for a socket, it cannot be written, it is
//     on a file system of several hosts, or the system has no such sockets: the Server neither listens
//     nor sends, and everything works through the SQL server.
//   - Containers that share the folder reach each other, whatever their networks. If they do not share
//     the kernel, messages are refused, as those to a killed process.
//   - A process that has lost the SQL server hears its grant, which is on record. Its lease ends as that
//     of any holder that cannot renew.
//   - A stopped process has taken the message, and reads it late: package waiters or the client finds
//     that the grant is old, and asks.
//   - A command that a process starts does not inherit the socket.
package samehost
