package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU returns the CPU time of a process of this machine on all cores, with its ended
// threads; only Linux reports it.
func processCPU(pid int) (time.Duration, error) {
	const most = 1 << 22 // of a process id
	if pid <= 0 || pid > most {
		return 0, fmt.Errorf("CPU of process %d: %w", pid, syscall.ESRCH)
	}
	const exact = 2 // as the scheduler counts it; ticks are too coarse
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|exact), &ts); err != nil {
		return 0, fmt.Errorf("CPU of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// familyCPU is processCPU of a process and of its children, ended ones included.
func familyCPU(pid int) (time.Duration, error) {
	sum, err := processCPU(pid)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU of a server: %w", err)
	}
	// The second field is the program's name in parentheses, which may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("CPU of a server: %q", text)
	}
	for _, field := range fields[13:15] { // user and system time of ended children
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU of a server: %q: %w", text, err)
		}
		sum += time.Duration(ticks) * (time.Second / 100)
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // of each thread
	if err != nil || len(lists) == 0 {
		return 0, fmt.Errorf("CPU of a server: this system does not list its children: %w", errors.ErrUnsupported)
	}
	var children []string
	for _, list := range lists {
		text, err := os.ReadFile(list)
		// The thread has just ended.
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("CPU of a server: %w", err)
		}
		children = append(children, strings.Fields(string(text))...)
	}
	for _, word := range children {
		child, err := strconv.Atoi(word)
		if err != nil {
			return 0, fmt.Errorf("CPU of a server: %q: %w", children, err)
		}
		used, err := processCPU(child)
		// It has just ended.
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EINVAL) {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}
