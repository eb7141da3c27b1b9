// Package verify tests a user's own lock deployment: real client processes take locks of it under a
// prefix of their own, faults are done to them, and package history judges what they were told.
//
// Several processes of the same program take part. The coordinator starts workers ([Work]), each of
// which takes locks and records a history; it keeps the [Resource] that the locks guard, so that a
// worker that is stopped or killed cannot block it. A worker is told what to do by a [Job] on its
// standard input, and says how it fares by lines of [Progress] on its standard output.
package verify
