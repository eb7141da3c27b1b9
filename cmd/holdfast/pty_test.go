//go:build linux

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// screen is a terminal with a shell that has job control.
type screen struct {
	*bench
	pty   *os.File
	shell *exec.Cmd
	mu    sync.Mutex
	text  bytes.Buffer
}

// newScreen starts a shell on a terminal of its own.
func newScreen(b *bench) *screen {
	b.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		b.Skip("needs bash, for its job control")
	}
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		b.Skip("needs a terminal: ", err)
	}
	fd := int(pty.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 200})
	}
	if err != nil {
		b.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer tty.Close()
	s := &screen{bench: b, pty: pty, shell: exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")}
	s.shell.Env = append(b.env, "PS1=ready> ", "TERM=dumb")
	s.shell.Dir = b.dir
	s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = tty, tty, tty
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.shell.Start(); err != nil {
		b.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := pty.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	b.Cleanup(func() {
		_ = syscall.Kill(-s.foreground(), syscall.SIGKILL)
		_ = s.shell.Process.Kill()
		_ = s.shell.Wait()
		pty.Close()
		<-read
		if b.Failed() {
			b.Logf("screen: %q", s.text.String())
		}
	})
	s.see("ready> ")
	return s
}

// foreground returns the group that has the terminal.
func (s *screen) foreground() int {
	g, err := unix.IoctlGetInt(int(s.pty.Fd()), unix.TIOCGPGRP)
	if err != nil || g <= 1 { // 0 after the shell has ended: a signal to group 0 would reach this process
		return 1 << 30 // no group
	}
	return g
}

// keys clears the recorded text, and types.
func (s *screen) keys(text string) {
	s.Helper()
	s.mu.Lock()
	s.text.Reset()
	s.mu.Unlock()
	if _, err := s.pty.WriteString(text); err != nil {
		s.Fatal(err)
	}
}

// see waits until the screen shows the pattern.
func (s *screen) see(pattern string) string {
	s.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	s.until("on the screen: "+pattern, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		found = re.FindString(s.text.String())
		return found != ""
	})
	return found
}

// The command has the terminal while it runs: it reads, and keys interrupt it. Then the shell gets
// the terminal back.
func TestTerminal(t *testing.T) {
	s := newScreen(newBench(t))
	s.keys("$H run a -- sh -c 'echo $$ >$D/ready; read x; echo got $x'\n")
	child := s.pid("ready")
	s.until("the command has the terminal", func() bool { return s.foreground() == child })
	s.keys("hello\n")
	s.see("got hello")
	s.see("ready> $")
	if s.foreground() != s.shell.Process.Pid {
		t.Errorf("%d has the terminal, not the shell", s.foreground())
	}
	s.keys("$H run a -- sh -c 'echo be''gun; exec sleep 1000'\n")
	s.see("begun")
	s.keys("\x03")
	s.see("ready> $")
	s.keys("echo it was $?\n")
	s.see("it was 130")
}

// ^Z stops the job, and the shell reports that. fg continues the job; bg does so without the
// terminal.
func TestJobControl(t *testing.T) {
	s := newScreen(newBench(t))
	s.keys("$H run a -- sh -c 'echo $$ >$D/ready; read x; echo got $x; exit 7'\n")
	child := s.pid("ready")
	// As under any shell, the command gets the terminal and then SIGCONT, which undoes a ^Z between the two.
	ready := func() bool { return s.foreground() == child && !stopped(child) }
	for range 3 {
		s.until("the command has the terminal and runs", ready)
		s.keys("\x1a")
		s.see("Stopped")
		s.see("ready> $")
		if s.foreground() != s.shell.Process.Pid {
			t.Fatalf("%d has the terminal, not the shell", s.foreground())
		}
		s.keys("fg\n")
	}
	s.until("the command has the terminal and runs", ready)
	s.keys("\x1a")
	s.see("Stopped")
	s.keys("bg\n")
	s.see(`(?s)bg.*ready> `)
	// A read in the background stops the job again.
	s.keys("\n")
	s.until("the job stops", func() bool {
		s.keys("jobs\n")
		return strings.Contains(s.see(`(?s)jobs.*ready> $`), "Stopped")
	})
	s.keys("fg\n")
	s.until("the command has the terminal", func() bool { return s.foreground() == child })
	s.keys("late\n")
	s.see("got late")
	s.keys("echo code $?\n")
	s.see("code 7")
}

// A key that interrupts the command also interrupts the script that runs it.
func TestInterruptReachesTheScript(t *testing.T) {
	s := newScreen(newBench(t))
	s.keys("bash -c '$H run a -- sh -c \"echo be\"gun; $H run a -- sleep 1000; touch $D/on'\n")
	s.see("begun")
	s.until("sleep has the terminal", func() bool {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.foreground()))
		return string(comm) == "sleep\n"
	})
	s.keys("\x03")
	s.see("ready> $")
	s.keys("echo it was $?\n")
	s.see("it was 130")
	if _, err := os.Stat(s.dir + "/on"); err == nil {
		t.Error("the script went on")
	}
}

// The line about the holder is updated in place, and removed at the end.
func TestWaitingLineOnTerminal(t *testing.T) {
	b := newBench(t)
	holder := b.holder("a")
	s := newScreen(b)
	s.keys("$H run a -- echo it runs\n")
	s.see(`\rwaiting for a: 0 ahead · held by \S+@\S+:\d+ "sh" for \d+s · lease \d+s\x1b\[K`)
	s.see(`(?s)\rwaiting for a: .*\rwaiting for a: `)
	holder.signal(syscall.SIGTERM)
	s.see(`\r\x1b\[Kit runs`)
	s.see("ready> $")
}

// top shows the list anew until it is interrupted.
func TestTop(t *testing.T) {
	b := newBench(t)
	holder := b.holder("a")
	s := newScreen(b)
	s.keys("$H top\n")
	s.see(`\x1b\[H\S+  sqlite:\S+: 1 in use, 0 waiting\x1b\[K\r\nNAME .*\r\na +exclusive .*\r\n\x1b\[J`)
	holder.signal(syscall.SIGTERM)
	s.see(`: 0 in use, 0 waiting\x1b\[K\r\n\x1b\[J`)
	s.keys("\x03")
	s.see("ready> $")
}
