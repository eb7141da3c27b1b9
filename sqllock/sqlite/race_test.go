//go:build race

package sqlite

// raceFactor lengthens leases under the race detector, which makes an SQLite in pure Go more than
// ten times slower.
const raceFactor = 3
