//go:build !race

package sqllock

const raceFactor = 1
