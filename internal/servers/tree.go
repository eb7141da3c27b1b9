package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A server that forks is frozen and killed process by process: its children may be in sessions of
// their own, so no signal reaches all of them.

// Status is the state of a process.
type Status struct {
	Parent int
	State  byte // as ps prints it: 'T' stopped, 'Z' ended
}

// children returns the running processes that pid has forked.
func children(pid int) (pids []int, err error) {
	all, err := Processes()
	for child, s := range all {
		if s.Parent == pid && s.State != 'Z' {
			pids = append(pids, child)
		}
	}
	return pids, err
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Signal(s) // it may have ended
			_ = p.Release()
		}
	}
}

// TreeFrozen reports whether no thread of the processes runs that pid has forked, nor of theirs.
func TreeFrozen(pid int) bool {
	all, err := Processes()
	if err != nil {
		return false
	}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for child, s := range all {
			if s.Parent != queue[0] || s.State == 'Z' {
				continue
			}
			if !stopped(child, s) {
				return false
			}
			queue = append(queue, child)
		}
	}
	return true
}

// ErrNoChild means that a process does not belong to the server.
var ErrNoChild = errors.New("no process of the server")

// KillChild kills one process that the server has forked. It returns when all that it has forked
// have ended, as those of PostgreSQL do then.
//
// The error is ErrNoChild if pid is not, or no longer, a process of the server.
func (s *Server) KillChild(pid int) error {
	all, err := children(s.PID())
	if err == nil && !slices.Contains(all, pid) {
		err = fmt.Errorf("%w: %d; its processes are %v", ErrNoChild, pid, all)
	}
	if err != nil {
		return err
	}
	signalAll([]int{pid}, syscall.SIGKILL)
	return gone(all)
}

// freeze stops p and, if the server forks, its children. It returns the children once no thread of
// them runs.
func (s *Server) freeze(p *process) (kids []int, err error) {
	if p.ended() {
		return nil, nil
	}
	p.signal(sigStop)
	if err := until("stop", []int{p.pid()}, stopped); err != nil || !s.Forks {
		return nil, err
	}
	if kids, err = children(p.pid()); err != nil { // it can no longer fork
		return nil, err
	}
	signalAll(kids, sigStop)
	return kids, until("stop", kids, stopped)
}

// stopped reports whether no thread of a process runs.
func stopped(pid int, s Status) bool {
	is, known := Frozen(pid)
	return s.State == 'T' && (is || !known)
}

// gone waits until none of pids runs, and their shared resources are free.
func gone(pids []int) error { return until("end", pids, func(int, Status) bool { return false }) }

// until waits until done holds for all of pids that have not ended. It polls: no event reports that
// another process's child has stopped or ended.
func until(what string, pids []int, done func(int, Status) bool) error {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
		all, err := Processes()
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		left := 0
		for _, pid := range pids {
			if st, ok := all[pid]; ok && st.State != 'Z' && !done(pid, st) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d processes of the server do not %s", left, len(pids), what)
		}
	}
}

// watch lets a shell continue the frozen pids if this process dies: frozen processes do not notice
// that their parent has died, and would not end. It ends an earlier watch.
func (s *Server) watch(pids []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endWatch != nil {
		s.endWatch()
		s.endWatch = nil
	}
	if len(pids) == 0 {
		return nil
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
		return err
	}
	s.endWatch = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // closes its input
	}
	return nil
}
