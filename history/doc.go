// Package history judges what the clients of a lock service did and were told: whether the lock
// excluded, whether its tokens fenced, whether waiters were served, and whether the run was hard
// enough to prove anything.
//
// A [Recorder] writes events while a program runs, one file a process. [ReadFiles] merges the files, and
// [Check] judges them. It knows the clients' side and the end state only, and no store: it works for any
// lock with leases, holdfast's or not.
package history
