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
func familyCPU(pid int) (sum time.Duration, err error) {
	const tries = 100
	for range tries {
		before, err := endedCPU(pid)
		if err != nil {
			return 0, err
		}
		sum, all, err := livingCPU(pid)
		if err != nil {
			return 0, err
		}
		after, err := endedCPU(pid)
		if err != nil || all && before == after {
			return sum + after, err
		}
		// A child has ended meanwhile, and its time may be in neither sum.
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("CPU of a server: a child of process %d ends at every reading", pid)
}

// endedCPU returns the CPU time of the children of a process that have ended.
func endedCPU(pid int) (sum time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU of a server: %w", err)
	}
	// The second field is the program's name in parentheses, which may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("CPU of a server: %q", text)
	}
	for _, field := range fields[13:15] { // user and system time
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU of a server: %q: %w", text, err)
		}
		sum += time.Duration(ticks) * (time.Second / 100)
	}
	return sum, nil
}

// livingCPU returns the CPU time of a process and of its children that have not ended. all is false if
// one of them has just ended.
func livingCPU(pid int) (sum time.Duration, all bool, err error) {
	if sum, err = processCPU(pid); err != nil {
		return 0, false, err
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // of each thread
	if err != nil || len(lists) == 0 {
		return 0, false, fmt.Errorf("CPU of a server: this system does not list its children: %w", errors.ErrUnsupported)
	}
	all = true
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) { // the thread has just ended
			all = false
		} else if err != nil {
			return 0, false, fmt.Errorf("CPU of a server: %w", err)
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return 0, false, fmt.Errorf("CPU of a server: %q: %w", text, err)
			}
			used, err := processCPU(child)
			if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EINVAL) {
				all = false
			} else if err != nil {
				return 0, false, err
			}
			sum += used
		}
	}
	return sum, all, nil
}
