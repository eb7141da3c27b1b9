// Package history judges what the clients of a lock service did and observed: whether the lock
// excluded, whether its tokens fenced, whether waiters got the lock, and whether the run was hard
// enough to prove anything.
//
// A [Recorder] writes events while a program runs, one file per process. [ReadFiles] merges the
// files, and [Check] judges them. It uses only the clients' observations and the end state, and no
// store: it works for any lock with leases, holdfast's or not.
package history
