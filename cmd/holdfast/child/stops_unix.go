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
// that. So a stop waits until this process is in the queue and holds nothing, or until its command has
// begun, which then stops in its place. A nil *Stops puts nothing off. The methods may be called
// concurrently.
type Stops struct {
	signals chan os.Signal

	mu      sync.Mutex
	restore func() // of the action of SIGTSTP; nil: this process stops as others do
	queued  bool   // this process is in the queue, and has not got what it asks for
	held    int    // locks, of several that it asks for
	asked   bool   // to stop
	tries   int    // how often the timer has put the stop off
}

const (
	stopAtMost = time.Second // how long a stop waits if this process holds nothing: the store may be silent
	stopTries  = 4           // how many times as long if it holds some locks, which it gives back soon
)

// PutOff begins with all stops put off. Signals is that of the Command. The caller passes what it
// receives from it to Got, unless Run does.
func PutOff(signals chan os.Signal) *Stops {
	s := &Stops{signals: signals}
	s.do(s.putOff)
	return s
}

// do calls f alone.
func (s *Stops) do(f func()) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
}

func (s *Stops) putOff() {
	if s.restore == nil && !ignored(syscall.SIGTSTP) {
		s.restore = keepActions()
		signal.Notify(s.signals, syscall.SIGTSTP, syscall.SIGCONT)
	}
}

// stop lets this process stop as others do, and stops it if it was asked to.
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

// Got tells s of a signal. If that asks for a stop, it is carried out now or put off.
func (s *Stops) Got(sig os.Signal) {
	s.do(func() {
		switch {
		case sig == syscall.SIGCONT:
			s.asked = false
		case sig != syscall.SIGTSTP || s.asked:
		case s.restore == nil || s.queued && s.held == 0:
			s.asked = true
			s.stop()
		default:
			s.asked, s.tries = true, 0
			time.AfterFunc(stopAtMost, func() { s.do(s.waited) })
		}
	})
}

// waited is called when a stop was put off for a while.
func (s *Stops) waited() {
	if s.tries++; s.asked && s.held > 0 && s.tries < stopTries {
		time.AfterFunc(stopAtMost, func() { s.do(s.waited) })
	} else if s.asked {
		s.stop()
	}
}

// Queued tells s that this process is in the queue.
func (s *Stops) Queued() {
	s.do(func() {
		if s.queued = true; s.held == 0 {
			s.stop()
		}
	})
}

// Acquired tells s that this process has got a lock, perhaps the first of several.
func (s *Stops) Acquired() {
	s.do(func() {
		s.held++
		s.putOff()
	})
}

// Ended tells s that this process has lost a lock, or has given it back.
func (s *Stops) Ended() {
	s.do(func() {
		if s.held = max(s.held-1, 0); s.held == 0 && s.queued {
			s.stop()
		}
	})
}

// Granted tells s that this process has all that it asked for, and runs a command next. The command
// takes a stop that was put off. Nobody else may receive the signals meanwhile.
func (s *Stops) Granted() {
	s.do(func() {
		s.queued = false
		s.putOff()
		var others []os.Signal
		for more := true; more; {
			select {
			case sig := <-s.signals:
				switch sig {
				case syscall.SIGTSTP, syscall.SIGCONT:
					s.asked = sig == syscall.SIGTSTP
				default:
					others = append(others, sig)
				}
			default:
				more = false
			}
		}
		if s.asked {
			s.asked = false
			others = append([]os.Signal{syscall.SIGTSTP}, others...)
		}
		for _, sig := range others {
			select {
			case s.signals <- sig:
			default: // more signals than the channel has room for
			}
		}
	})
}

// Over tells s that the command has ended, and that the release of its locks has begun.
func (s *Stops) Over() {
	s.do(func() { s.held, s.queued = 0, false })
}
