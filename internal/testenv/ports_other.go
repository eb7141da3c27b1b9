//go:build !linux

package testenv

import "testing"

// claim does nothing: on this system tests that run in parallel may use the same port.
func claim(testing.TB, int) bool { return true }
