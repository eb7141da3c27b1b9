//go:build !linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

func dieWithParent(*exec.Cmd) {}

// runAs changes nothing: servers that refuse to run as root report that.
func runAs(*exec.Cmd, uint32, uint32) {}

func syncData(f *os.File) error { return f.Sync() }

func processCPU(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("CPU of process %d: %w", pid, errors.ErrUnsupported)
}

func familyCPU(pid int) (time.Duration, error) { return processCPU(pid) }
