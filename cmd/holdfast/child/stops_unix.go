//go:build unix

package child

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Stops puts off a stop by SIGTSTP, as a key sends it, while it would harm others. A process that stops
// between the grant of its lock and the start of its command keeps all others from the lock, with
// nothing to show for it. One that stops within a transaction of an embedded store shuts them out of
// that. So a stop waits until this process is in the queue of a lock, or until its command has begun,
// which then stops in its place. A nil *Stops puts nothing off. The methods may be called concurrently.
type Stops struct {
	signals chan os.Signal

	mu      sync.Mutex
	restore func() // of the action of SIGTSTP; nil: this process stops as others do
	asking  bool   // for a lock
	asked   bool   // to stop
}

// stopAtMost is how long a stop waits at most, unless this process has a lock: the store may be silent.
const stopAtMost = time.Second

// PutOff begins with all stops put off. Signals is that of the Command. The caller passes what it
// receives from it to Got, unless Run does.
func PutOff(signals chan os.Signal) *Stops {
	s := &Stops{signals: signals}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putOff()
	return s
}

func (s *Stops) putOff() {
	if s.restore != nil || signal.Ignored(syscall.SIGTSTP) {
		return
	}
	s.restore = keepActions()
	signal.Notify(s.signals, syscall.SIGTSTP)
}

// Got tells s of a signal. If that asks for a stop, it is carried out now or put off.
func (s *Stops) Got(sig os.Signal) {
	if s == nil || sig != syscall.SIGTSTP {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked = true; s.restore == nil {
		s.stop()
		return
	}
	time.AfterFunc(stopAtMost, func() { s.release(false) })
}

// stop carries out a stop.
func (s *Stops) stop() {
	if s.restore != nil {
		s.restore()
		s.restore = nil
	}
	if s.asked {
		s.asked = false
		stopAsOthers()
	}
}

func (s *Stops) release(asking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asking && s.asking || !asking && s.asked {
		s.stop()
	}
}

// Asking tells s that this process asks for a lock.
func (s *Stops) Asking() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = true
	}
}

// Queued tells s that this process is in the queue. Until Granted it stops as others do.
func (s *Stops) Queued() {
	if s != nil {
		s.release(true)
	}
}

// Granted tells s that this process has a lock, and runs a command next, which takes a stop that was
// put off.
func (s *Stops) Granted() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	s.putOff()
	if s.asked {
		s.asked = false
		select {
		case s.signals <- syscall.SIGTSTP:
		default:
		}
	}
}
