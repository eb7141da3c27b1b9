package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/keeper"
	"github.com/holdfast-lock/holdfast/open"
)

// overFor is how long a keeper says that its hold is over, unless a release or the end of the
// watched process ends it before. The help and docs/tasks/ci.md name it.
const overFor = time.Hour

func (a *app) keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeperName, Hidden: true, Args: noArguments, Short: "The process in the background of holdfast hold",
		RunE: ours(func(*cobra.Command, []string) error {
			in := bufio.NewReader(os.Stdin)
			o := &holdOptions{}
			line, err := in.ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(line, o)
			}
			if err != nil {
				return usagef("%s is a part of holdfast hold", keeperName)
			}
			return a.keep(o, in)
		}),
	}
}

// ask is one request to a keeper.
type ask struct {
	op    keeper.Op
	reply chan<- *keeper.Answer
}

// keeping is a keeper at work. The goroutine of hold changes it, and then that of answerOver.
type keeping struct {
	a       *app
	o       *holdOptions
	socket  *keeper.Socket
	asked   chan ask
	over    chan struct{} // closed when no request gets an answer any more
	watched chan struct{} // closed when the watched process has ended
	signals chan os.Signal
	alone   chan struct{} // closed when hold has returned; no value comes if hold has ended before
	orphan  chan struct{} // closed when hold has ended before it could return

	lease   *holdfast.Lease
	adopted <-chan struct{} // not nil: the lock is offered
	answer  keeper.Answer   // its State is Held, Offered, Passed or Ended

	finished bool // a release was asked for
}

// keep takes the lock, and holds it until it is released, lost or over.
func (a *app) keep(o *holdOptions, in *bufio.Reader) error {
	a.set = &settings{url: o.URL}
	a.ttl = o.TTL
	socket, err := keeper.Listen(o.Name)
	if err != nil {
		return &failure{exitConfig, fmt.Errorf("the folder of holds: %w", err)}
	}
	if old, err := keeper.Find(o.Name); err == nil {
		for _, s := range old {
			keeper.Tidy(s)
		}
	}
	k := &keeping{
		a: a, o: o, socket: socket, asked: make(chan ask), over: make(chan struct{}), watched: make(chan struct{}),
		signals: make(chan os.Signal, 8), alone: make(chan struct{}), orphan: make(chan struct{}),
	}
	defer func() {
		close(k.over)
		_ = socket.Close()
	}()
	signal.Notify(k.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	go k.watchParents(in)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	waiting, stopped := make(chan struct{}), make(chan struct{}) // waiting is closed when the lock is taken
	go func() {
		defer close(stopped)
		select {
		case s := <-k.signals:
			cancel(signaled{s.(syscall.Signal)})
		case <-k.orphan:
			cancel(signaled{syscall.SIGHUP})
		case <-k.watched:
			cancel(&failure{exitUsage, fmt.Errorf("the process %d has ended", o.While)})
		case <-waiting:
		}
	}()
	line := newWaitLine()
	cfg := holdfast.Config{Program: "holdfast hold", Labels: o.Labels,
		Observer: &holdfast.Observer{Waiting: line.update, Renewed: line.renewed}}
	a.bound(seconds{o.Wait, o.WaitSet})
	answered := make(chan struct{}) // closed when the keeper is of no use any more
	err = a.with(ctx, cfg, func(s *session) error {
		t := &task{a: a, line: line}
		h, err := t.lock(ctx, s, o.runOptions(), o.Name)
		close(waiting)
		<-stopped // from here on signals are for k.hold
		if err == nil && context.Cause(ctx) != nil {
			err = errors.Join(context.Cause(ctx), h.ReleaseNow())
		}
		if err != nil {
			return err
		}
		k.lease = h.parts[0]
		err = k.hold(s)
		go func() { // the session may take seconds to close
			defer close(answered)
			if err == nil && k.isOver() && !k.finished {
				k.answerOver()
			}
		}()
		return err
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil {
		return advised(err)
	}
	<-answered
	return nil
}

// watchParents closes alone or orphan when it is known which, and watched.
func (k *keeping) watchParents(in *bufio.Reader) {
	if k.o.While != 0 {
		fd := 0
		if k.o.File {
			fd = watchFD
		}
		p := keeper.Inherited(fd, k.o.While)
		go func() {
			p.Wait()
			close(k.watched)
		}()
	}
	if _, err := in.ReadByte(); err != nil {
		close(k.orphan)
		return
	}
	close(k.alone)
}

// hold reports that the lock is held, and serves requests until it is not.
func (k *keeping) hold(s *session) error {
	l := k.lease
	store, _ := open.WithoutPassword(k.o.URL)
	k.answer = keeper.Answer{State: keeper.Held, Name: l.Name(), Token: l.Token(), Store: store, While: k.o.While}
	if err := k.socket.Publish(); err != nil {
		return errors.Join(&failure{exitConfig, fmt.Errorf("the folder of holds: %w", err)}, l.Release())
	}
	go k.socket.Serve(k.request)
	err := json.NewEncoder(os.Stdout).Encode(heldBy{l.Token(), k.socket.Path, s.heldBy(l)})
	if err != nil { // hold has ended
		return l.Release()
	}
	detached := false
	end := after(k.o.MaxHold)
	for !k.isOver() && !k.finished {
		lost := l.Done()
		if k.adopted != nil {
			lost = nil
		}
		var alone <-chan struct{}
		if !detached {
			alone = k.alone
		}
		select {
		case <-alone:
			detached = true
			if err := forgetOutput(); err != nil {
				return errors.Join(err, l.Release())
			}
		case q := <-k.asked:
			k.serve(q)
		case <-lost:
			k.end(l.Why())
		case <-k.adopted:
			k.answer.State = keeper.Passed
		case <-end: // of an offer; the lease ends by itself
			if k.adopted != nil {
				return k.release()
			}
			end = nil
		case <-k.orphan:
			return k.release()
		case <-k.watched:
			return k.release()
		case <-k.signals:
			return k.release()
		}
	}
	return nil
}

// request passes a request on, and returns its answer, nil if the keeper ends without one.
func (k *keeping) request(op keeper.Op) *keeper.Answer {
	reply := make(chan *keeper.Answer, 1)
	select {
	case k.asked <- ask{op, reply}:
	case <-k.over:
		return nil
	}
	select {
	case a := <-reply:
		return a
	case <-k.over:
	}
	select {
	case a := <-reply: // a release ends the keeper right after its answer
		return a
	default:
		return nil
	}
}

// isOver reports whether the lock is not this hold's any more.
func (k *keeping) isOver() bool {
	return k.answer.State == keeper.Ended || k.answer.State == keeper.Passed
}

// release ends the hold without a request. Nobody would see an error.
func (k *keeping) release() error {
	_ = k.lease.Release()
	return nil
}

// end notes that the lock is not held any more.
func (k *keeping) end(why error) {
	k.answer.State, k.answer.Why = keeper.Ended, "it was lost"
	var e *holdfast.Error
	if errors.As(why, &e) {
		k.answer.Why = e.Err.Error()
		switch {
		case e.Notice != nil:
			k.answer.Why += fmt.Sprintf(" (%s by %s)", e.Reason, operatorText(e.Notice))
		case e.Reason != "":
			k.answer.Why += fmt.Sprintf(" (%s)", e.Reason)
		}
	}
}

// serve answers a request.
func (k *keeping) serve(q ask) {
	if err := k.lease.Err(); k.adopted == nil && k.answer.State == keeper.Held && err != nil { // notices an expiry, too
		k.end(k.lease.Why())
	}
	a := k.answer
	switch {
	case k.isOver():
	case q.op == keeper.Check:
		a.Left = k.lease.Left()
		if n := k.lease.Revocation(); n != nil {
			a.Asked = operatorText(n)
		}
	case q.op == keeper.Release:
		a = k.releaseFor(a)
	case k.adopted != nil:
		a.Why = "it was offered before"
	default:
		a = k.offer(a)
	}
	if q.op == keeper.Release {
		k.finished = true
		_ = os.Remove(k.socket.Path) // before the answer: a later request finds no hold
	}
	q.reply <- &a
}

// offer hands the lease off, and returns the answer.
func (k *keeping) offer(a keeper.Answer) keeper.Answer {
	ticket, adopted, err := k.lease.HandOff()
	if err != nil {
		k.end(err)
		return k.answer
	}
	k.adopted, k.answer.State = adopted, keeper.Offered
	a.State, a.Ticket = keeper.Offered, ticket
	return a
}

// releaseFor releases the lock, and returns the answer.
func (k *keeping) releaseFor(a keeper.Answer) keeper.Answer {
	switch err := k.lease.Release(); {
	case err == nil:
		a.State = keeper.Released
	case k.adopted != nil && errors.Is(err, holdfast.ErrReleased):
		a.State = keeper.Passed
	case isOutage(err):
		a.State, a.Why = keeper.Unsure, oneLine(k.a.message(err.Error()))
	default:
		k.end(err)
		a = k.answer
	}
	return a
}

// answerOver answers that the lock is not held any more.
func (k *keeping) answerOver() {
	limit := time.After(overFor)
	for {
		select {
		case q := <-k.asked:
			if k.serve(q); k.finished {
				return
			}
		case <-k.watched:
			return
		case <-k.orphan:
			return
		case <-k.signals:
			return
		case <-limit:
			return
		}
	}
}

// after returns a channel that gets a value after d, and never if d is 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// forgetOutput makes this process let go of the pipes of hold.
func forgetOutput() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return redirect(null)
}

// heldBy returns the value of HOLDFAST_HELD for commands under l.
func (s *session) heldBy(l *holdfast.Lease) string {
	var all []string
	for _, h := range append(inherited(), held{digest(s.place, l.Name()), l.Token()}) {
		all = append(all, h.digest+"="+strconv.FormatUint(h.token, 10))
	}
	return strings.Join(all, " ")
}
