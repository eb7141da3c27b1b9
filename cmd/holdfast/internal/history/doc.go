// Package history judges what the clients of a lock service did and observed. It checks whether the
// lock excluded, its tokens fenced, and waiters got the lock, and whether the run was hard enough
// to prove anything.
//
// A [Recorder] writes events while a program runs, one file per process. [ReadFiles] merges the
// files, and [Check] judges them. It uses only the clients' observations and the end state, and no
// store: it works for any lock with leases, holdfast's or not.
package history
