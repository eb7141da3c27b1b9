//go:build !race

package sqlite

const raceFactor = 1
