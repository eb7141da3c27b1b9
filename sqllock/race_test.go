//go:build race

package sqllock

// raceFactor is how much longer leases are under the race detector, with which an SQLite
// in pure Go is more than ten times slower.
const raceFactor = 3
