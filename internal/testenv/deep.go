package testenv

import "os"

// Deep reports whether the tests run at their full size, as scripts/deep.sh has them: with more
// rounds, names, histories, and each client library. Without it they take a short part of each,
// which the test command of the repository has time for.
func Deep() bool { return os.Getenv("HOLDFAST_TEST_DEEP") != "" }

// Rounds returns deep if the tests run at their full size, else short.
func Rounds(short, deep int) int {
	if Deep() {
		return deep
	}
	return short
}
