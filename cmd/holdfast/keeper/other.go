//go:build !unix

package keeper

import (
	"errors"
	"syscall"
)

// Dir returns an error: these systems have no folder that only one user may enter.
func Dir() (string, error) { return "", errors.New("this system has no keepers") }

// Detached returns nothing.
func Detached() *syscall.SysProcAttr { return nil }

// SessionLeader returns false.
func SessionLeader() (pid int, ok bool) { return 0, false }

func alive(int) error { return errors.New("this system has no keepers") }

// Ancestor returns false.
func Ancestor(int) bool { return false }
