//go:build !unix

package testenv

import (
	"os/exec"
	"testing"
)

// No test runs as root on these systems, so nothing calls these two.
func ids(testing.TB, string) (uid, gid int) { return -1, -1 }
func runAs(testing.TB, *exec.Cmd, string)   {}
