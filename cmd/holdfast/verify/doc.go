// Package verify tests a user's own lock deployment. Real client processes take locks under a
// prefix of their own, the coordinator injects faults, and package history judges the recorded
// answers.
//
// Several processes of the same program take part. The coordinator starts workers ([Work]), each of
// which takes locks and records a history. The coordinator keeps the [Resource] that the locks
// guard, so that a worker that is stopped or killed cannot block it. A worker reads a [Job] from
// its standard input, and writes lines of [Progress] to its standard output.
package verify
