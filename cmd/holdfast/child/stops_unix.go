//go:build unix

package child

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Stops carries out stops by SIGTSTP, as a key sends it, and puts them off while they would harm others.
// A process that stops between the grant of its lock and the start of its command keeps all others from
// the lock, with nothing to show for it. So a stop waits until this process is in the queue and holds
// nothing, or until its command has begun, which then stops in its place. One that stops within a
// transaction of an embedded store shuts all others out of that, so the store is paused first. A nil
// *Stops does nothing. The methods may be called concurrently.
type Stops struct {
	signals chan os.Signal
	halt    func() // stopHere

	mu       sync.Mutex
	pause    Pause
	queued   bool        // this process is in the queue, and has not got what it asks for
	held     int         // locks, of several that it asks for
	asked    bool        // to stop
	stopping bool        // stop is under way
	tries    int         // how often the timer has put the stop off
	timer    *time.Timer // not nil: set when a stop is put off
}

// Pause waits until no request of this process to its store is under way, and lets none begin until
// resume is called. After an error nothing is paused.
type Pause func(ctx context.Context) (resume func(), err error)

const (
	stopAtMost = time.Second            // how long a stop waits if this process holds nothing: the store may be silent
	stopTries  = 4                      // how many times as long if it holds some locks, which it gives back soon
	pauseLimit = 200 * time.Millisecond // for Pause
	newsLimit  = 5 * time.Millisecond   // from the last request before a pause until Acquired
)

// PutOff makes this process catch stops, unless it ignores them. Signals is that of the Command. The
// caller passes what it receives from it to Got, unless Run does.
func PutOff(signals chan os.Signal) *Stops {
	if !ignored(syscall.SIGTSTP) {
		signal.Notify(signals, syscall.SIGTSTP, syscall.SIGCONT)
	}
	return &Stops{signals: signals, halt: stopHere}
}

// do calls f alone.
func (s *Stops) do(f func()) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
}

// Uses tells s how the store is paused that this process uses from now on.
func (s *Stops) Uses(p Pause) { s.do(func() { s.pause = p }) }

// stop stops this process if it was asked to, unless it gets a lock at this moment. A stop during the
// request for a lock would come right after the grant, when the store is paused.
func (s *Stops) stop() {
	if !s.asked || s.stopping {
		return
	}
	s.stopping = true
	pause := s.pause
	go func() { // Acquired may have to wait for the caller
		resume, paused := pause.begin()
		defer resume()
		time.Sleep(newsLimit)
		s.do(func() {
			s.stopping = false
			switch {
			case !s.asked:
			case (s.held > 0 || !paused) && s.tries < stopTries:
				s.later()
			default:
				s.forget()
				s.halt()
			}
		})
	}()
}

// begin pauses the store, unless it does not know how. It reports whether no request is under way.
func (p Pause) begin() (resume func(), paused bool) {
	if p == nil {
		return func() {}, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseLimit)
	defer cancel()
	resume, err := p(ctx)
	if err != nil {
		return func() {}, false
	}
	return resume, true
}

// later sees to it that waited is called.
func (s *Stops) later() {
	if s.timer == nil {
		s.timer = time.AfterFunc(stopAtMost, func() { s.do(s.waited) })
	} else {
		s.timer.Reset(stopAtMost)
	}
}

// forget forgets that this process was asked to stop.
func (s *Stops) forget() {
	if s.asked, s.tries = false, 0; s.timer != nil {
		s.timer.Stop()
	}
}

// Got tells s of a signal. If that asks for a stop, it is carried out now or put off.
func (s *Stops) Got(sig os.Signal) {
	s.do(func() {
		switch {
		case sig == syscall.SIGCONT:
			s.forget()
		case sig != syscall.SIGTSTP || s.asked:
		case s.queued && s.held == 0:
			s.asked = true
			s.stop()
		default:
			s.asked = true
			s.later()
		}
	})
}

// waited is called when a stop was put off for a while.
func (s *Stops) waited() {
	if s.tries++; s.asked && s.held > 0 && s.tries < stopTries {
		s.later()
	} else {
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
func (s *Stops) Acquired() { s.do(func() { s.held++ }) }

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
			others = append([]os.Signal{syscall.SIGTSTP}, others...)
		}
		s.forget()
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
