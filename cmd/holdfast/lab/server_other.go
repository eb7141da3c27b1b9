//go:build !linux

package lab

import "os/exec"

// tiedToParent runs f, which starts cmd and waits for it.
func tiedToParent(_ *exec.Cmd, f func()) { go f() }
