// Package samehost carries messages between processes of one user on one host, through datagram
// sockets. Package sqllock wakes waiters with it. A datagram takes some microseconds; a wake-up by the
// SQL server takes a command and the time of several processes.
//
// A Server (the lock table of one process: see package sqllock) that has waiters listens on a socket.
// The socket's file is in a folder of this user alone; its name is the kind of the SQL server and the
// Server's random ID. A message that was sent may never be read. Any process of this user may have
// sent it, so its reader must judge it. What can go wrong, and what follows:
//
//   - No file, nobody listens, or a full buffer (a stopped process takes some ten messages): Send
//     returns false, and the sender wakes the waiter through the SQL server. It does so also for
//     processes of other hosts, of other users, and of containers with another folder.
//   - No message comes: the sender was killed after its commit, or the answer to its commit was lost.
//     While a Server has waiters, it is told every Pause to look at the SQL server.
//   - A message comes twice, late, or for a request that has ended: package waiters ignores it, or
//     package sqllock gives the grant back.
//   - A process was killed: its file is left, and the kernel refuses messages to it. The next process
//     that sends there, or that begins to listen, removes the file. IDs are never reused.
//   - A cleaner has removed the file or the folder: the Server notices at its next wait, and listens
//     on a new socket.
//   - The folder belongs to another user, its path is too long for a socket, it cannot be written, it
//     is on a file system of several hosts, or the system has no such sockets: the Server neither
//     listens nor sends. Everything works through the SQL server.
//   - Containers that share the folder reach each other, whatever their networks. If they do not share
//     the kernel, messages are refused, like those to a killed process.
//   - A process that has lost the SQL server still receives a grant, which is on record. Its lease ends
//     as that of any holder that cannot renew.
//   - A stopped process has taken the message, and reads it late: package waiters or the client finds
//     that the grant is old, and asks.
//   - A command that a process starts does not inherit the socket.
package samehost
