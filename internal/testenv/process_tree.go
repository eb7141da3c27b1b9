package testenv

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that forks is frozen and killed process by process: its children may be in sessions of
// their own, so no signal reaches all of them.

// status is the state of a process.
type status struct {
	parent int
	state  byte // as ps prints it: 'T' stopped, 'Z' ended
}

// children returns the running processes that pid has forked.
func children(t testing.TB, pid int) []int {
	t.Helper()
	all, err := processes()
	if err != nil {
		t.Fatalf("list processes: %v", err)
	}
	var pids []int
	for child, s := range all {
		if s.parent == pid && s.state != 'Z' {
			pids = append(pids, child)
		}
	}
	return pids
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Signal(s) // it may have ended
			_ = p.Release()
		}
	}
}

// freeze stops p and, if the server forks, its children. It returns the children once no thread of
// them runs.
func (s *server) freeze(p *process) []int {
	s.t.Helper()
	if p.ended() {
		return nil
	}
	p.signal(sigStop)
	s.until("stop", []int{p.pid()}, stopped)
	if !s.forks {
		return nil
	}
	kids := children(s.t, p.pid()) // it can no longer fork
	signalAll(kids, sigStop)
	s.until("stop", kids, stopped)
	return kids
}

// stopped reports whether no thread of a process runs.
func stopped(pid int, s status) bool { return s.state == 'T' && threadsStopped(pid) }

// gone waits until none of pids runs, and their shared resources are free.
func (s *server) gone(pids []int) {
	s.t.Helper()
	s.until("end", pids, func(int, status) bool { return false })
}

// until waits until done holds for all of pids that have not ended. It polls: no event reports that
// another process's child has stopped or ended.
func (s *server) until(what string, pids []int, done func(int, status) bool) {
	s.t.Helper()
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
		all, err := processes()
		if err != nil {
			s.t.Fatalf("list processes: %v", err)
		}
		left := 0
		for _, pid := range pids {
			if st, ok := all[pid]; ok && st.state != 'Z' && !done(pid, st) {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d processes of %s do not %s", left, len(pids), s.what, what)
		}
	}
}

// watch lets a shell continue the frozen pids if this process dies: frozen processes do not notice
// that their parent has died, and would not end. It ends an earlier watch.
func (s *server) watch(pids []int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endWatch != nil {
		s.endWatch()
		s.endWatch = nil
	}
	if len(pids) == 0 {
		return
	}
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}
	// The shell's input, to which nobody writes, ends with this process. An interrupt from the
	// terminal may end this process, but must not end the shell.
	cmd := exec.Command("sh", "-c", "trap '' INT TERM HUP; read _; kill -CONT "+strings.Join(words, " "))
	_, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.endWatch = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // closes its input
	}
}
