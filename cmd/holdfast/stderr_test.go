//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// full returns the write end of a full pipe that nobody reads.
func full(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = syscall.Write(fd, make([]byte, n))
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w
}

// Nobody reads the messages of holdfast. It still releases the lock when the command has ended, and
// kills a command whose time is over.
func TestNobodyReadsStandardError(t *testing.T) {
	for what, args := range map[string][]string{
		"members that stay": {"--ttl", "1h", "run", "a", "--", "sh", "-c", "sleep 4 & echo yes >$D/holds; exit 0"},
		"the max hold is over": {"--ttl", "1h", "run", "--kill-after", "1s", "--max-hold", "4s", "a", "--", "sh", "-c",
			"trap '' TERM; echo yes >$D/holds; while :; do sleep 0.1; done"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			cmd := exec.Command(binary, args...)
			cmd.Env, cmd.Dir, cmd.Stderr = b.env, b.dir, full(t)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-ended }()
			b.file("holds")
			b.want(0, "run", "-w", "25", "a", "--", "true") // long before the lease expires
		})
	}
}

// Nobody reads the line of a waiter, as on a terminal whose output was stopped. The waiter still
// runs its command when it gets the lock.
func TestNobodyReadsWhoIsWaitedFor(t *testing.T) {
	b := newBench(t)
	holder := b.start("run", "a", "--", "sh", "-c", "echo yes >$D/holds; sleep 5")
	b.file("holds")
	cmd := exec.Command(binary, "run", "a", "--", "sh", "-c", "echo $$ >$D/ran")
	cmd.Env, cmd.Dir, cmd.Stderr = b.env, b.dir, full(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	if code := holder.code(); code != 0 {
		t.Errorf("the holder's exit code: %d", code)
	}
	b.file("ran")
}
