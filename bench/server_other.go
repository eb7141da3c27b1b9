//go:build !linux

package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

func syncData(f *os.File) error { return f.Sync() }

func processCPU(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("CPU of process %d: %w", pid, errors.ErrUnsupported)
}

func familyCPU(pid int) (time.Duration, error) { return processCPU(pid) }
