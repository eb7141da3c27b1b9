//go:build !linux

package lab

import "os/exec"

// bound runs f, which starts cmd and waits for it.
func bound(_ *exec.Cmd, f func()) { go f() }
