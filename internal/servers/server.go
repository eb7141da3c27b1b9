// Package servers starts the programs of servers, stops, kills and freezes them. On Linux the
// kernel kills a program when the process that started it dies. The caller configures the server: a
// test, a benchmark and the lab need different ones.
package servers

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Server is a program that serves clients. Its methods may be called concurrently.
type Server struct {
	Quit  syscall.Signal // the signal for a graceful end; 0: SIGTERM
	Forks bool           // it forks processes that serve: they are frozen and killed with it

	mu       sync.Mutex
	proc     *process
	log      output // of all its processes, one after the other
	endWatch func() // ends the watch over frozen processes
}

// ErrEnded means that the server has ended instead of serving.
var ErrEnded = errors.New("the server has ended")

// Start starts the server, for the first time or after Stop or Kill. On Linux it belongs to a
// process group of its own: ^C is for the caller, which cleans up.
func (s *Server) Start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.mu.Lock()
	s.log.most = 64 << 10
	s.log.mu.Unlock()
	ownGroup(cmd)
	p, err := start(cmd, &s.log)
	if err == nil {
		s.proc = p
	}
	return err
}

// Await waits until ready returns nil. Errors: ErrEnded, also if another program answers on the port of
// the server; after the end of ctx, the last one of ready.
func (s *Server) Await(ctx context.Context, ready func() error) error {
	p := s.current()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil && !p.ended() {
			return nil
		}
		select {
		case <-p.done:
			return ErrEnded
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// Stop stops the server gracefully, and returns when it has ended.
func (s *Server) Stop() error {
	p := s.current()
	if p == nil {
		return nil
	}
	if s.Forks {
		p.signal(cmp.Or(s.Quit, syscall.SIGTERM))
		if err := s.Continue(); err != nil { // the parent waits for its children
			return err
		}
	}
	p.end(cmp.Or(s.Quit, syscall.SIGTERM))
	return nil
}

// Kill stops the server at once, and returns when it has ended.
func (s *Server) Kill() error {
	p := s.current()
	if p == nil {
		return nil
	}
	if !s.Forks {
		p.end(syscall.SIGKILL)
		return nil
	}
	// While frozen, the parent can neither fork nor notice that its children die.
	kids, err := s.freeze(p)
	signalAll(kids, syscall.SIGKILL)
	p.end(syscall.SIGKILL)
	return errors.Join(err, gone(kids), s.watch(nil))
}

// Pause freezes the server, and returns when none of its threads runs. Its connections stay open.
func (s *Server) Pause() error {
	kids, err := s.freeze(s.current())
	return errors.Join(err, s.watch(kids))
}

// Continue ends Pause.
func (s *Server) Continue() error {
	p := s.current()
	var err error
	if s.Forks && !p.ended() {
		var kids []int
		kids, err = children(p.pid())
		signalAll(kids, sigCont)
		err = errors.Join(err, s.watch(nil))
	}
	p.signal(sigCont)
	return err
}

// Ended reports whether the server was started, and is down for any reason.
func (s *Server) Ended() bool {
	p := s.current()
	return p != nil && p.ended()
}

// PID returns the id of the process that was started last.
func (s *Server) PID() int { return s.current().pid() }

// Output returns the end of what the server has printed: at most so many bytes, of at least 64 KiB
// that are kept.
func (s *Server) Output(most int) string {
	text := s.log.String()
	return text[max(0, len(text)-most):]
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}
