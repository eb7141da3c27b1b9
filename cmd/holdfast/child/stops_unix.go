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
	pend    func() stopper

	mu       sync.Mutex
	pause    Pause
	queued   bool        // this process is in the queue, and has not got what it asks for
	held     int         // locks, of several that it asks for
	asked    bool        // to stop
	forgot   int         // how often that was forgotten
	stopping bool        // stop is under way
	tries    int         // how often the timer has put the stop off
	timer    *time.Timer // not nil: set when a stop is put off
	ended    bool        // this process has stopped, and its SIGCONT has not been received
	order    order
}

// A stopper is a stop that is about to act. A SIGCONT that is sent from now on cancels it, where the
// system can do that.
type stopper interface {
	act(group bool) (undo func()) // stops this process, or its group; nil: a SIGCONT has cancelled the stop
	drop()                        // does not
	again()                       // begins anew if a SIGCONT has cancelled the stop
}

// An order finds out whether a stop came before the SIGCONT that was received before it. Package signal
// passes on signals that come together in the order of their numbers.
type order struct{ continued time.Time }

const (
	reversed = syscall.SIGCONT < syscall.SIGTSTP // as on Linux
	together = 2 * time.Millisecond              // at most, between the receipts of signals that come together
	settled  = 20 * time.Millisecond             // from the receipt of a stop until a SIGCONT before it is received
)

// cancels tells o of a SIGCONT to a process that is not stopped. It is there to cancel a stop.
func (o *order) cancels() { o.continued = time.Now() }

// cancelled reports whether a stop that was received now came before such a SIGCONT.
func (o *order) cancelled() bool { return reversed && time.Since(o.continued) < together }

// Pause waits until no request of this process to its store is under way, and lets none begin until
// resume is called. After an error nothing is paused.
type Pause func(ctx context.Context) (resume func(), err error)

const (
	stopAtMost = time.Second            // between tries to stop; if this process holds nothing, the first succeeds
	stopTries  = 4                      // at most, if it holds some locks, or the store is not open or not paused
	pauseLimit = 200 * time.Millisecond // for Pause
	newsLimit  = 20 * time.Millisecond  // from the last request before a pause until Acquired
)

// PutOff makes this process catch stops, unless it ignores them. Signals is that of the Command. The
// caller passes what it receives from it to Got, unless Run does.
func PutOff(signals chan os.Signal) *Stops {
	catchStops(signals)
	return &Stops{signals: signals, pend: pend}
}

// catchStops makes this process catch the signals that stop and continue it.
func catchStops(signals chan os.Signal) {
	if !ignored(syscall.SIGTSTP) {
		signal.Notify(signals, syscall.SIGTSTP)
	}
	signal.Notify(signals, syscall.SIGCONT)
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
	pause, forgot := s.pause, s.forgot
	go func() { // Acquired may have to wait for the caller
		stop := s.pend()
		resume, paused := pause.begin()
		defer resume()
		time.Sleep(newsLimit)
		s.do(func() {
			s.stopping = false
			switch {
			case s.forgot != forgot && !s.asked:
				stop.drop()
			case s.forgot != forgot, (s.held > 0 || !paused) && s.tries < stopTries:
				stop.drop()
				s.later()
			case pause == nil && s.pause != nil: // the store has been opened meanwhile
				stop.drop()
				s.stop()
			default:
				s.forget()
				if undo := stop.act(false); undo != nil {
					s.ended = true
					undo()
				}
			}
		})
	}()
}

// begin pauses the store, if it is open. It reports whether no request is under way.
func (p Pause) begin() (resume func(), paused bool) {
	if p == nil {
		return func() {}, false
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
	s.asked, s.tries = false, 0
	if s.forgot++; s.timer != nil {
		s.timer.Stop()
	}
}

// Got tells s of a signal. If that asks for a stop, it is carried out now or put off.
func (s *Stops) Got(sig os.Signal) {
	s.do(func() {
		switch {
		case sig == syscall.SIGCONT:
			if s.forget(); !s.ended {
				s.order.cancels()
			}
			s.ended = false
		case sig != syscall.SIGTSTP || s.asked || s.order.cancelled():
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
	if !s.asked { // forgotten at this moment
		return
	}
	if s.tries++; s.held > 0 && s.tries < stopTries {
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

// Acquired tells s that this process has got a lock, perhaps the first of several. A stop that the store
// has delayed until now waits for the others anew.
func (s *Stops) Acquired() { s.do(func() { s.held, s.tries = s.held+1, 0 }) }

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
		continued := s.order.cancelled() // a SIGCONT cancels stops that came together with it
		var others []os.Signal
		for more := true; more; {
			select {
			case sig := <-s.signals:
				switch sig {
				case syscall.SIGTSTP, syscall.SIGCONT:
					continued = continued || sig == syscall.SIGCONT
					s.asked = sig == syscall.SIGTSTP && !(reversed && continued)
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
