package testenv

import "os"

// Deep reports whether the tests run at their full size, as in scripts/deep.sh: with more rounds,
// names and histories, and with each client library. Otherwise they run a part that fits the time
// of the repository's test command.
func Deep() bool { return os.Getenv("HOLDFAST_TEST_DEEP") != "" }

// Rounds returns deep if the tests run at their full size, else short.
func Rounds(short, deep int) int {
	if Deep() {
		return deep
	}
	return short
}
