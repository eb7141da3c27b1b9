package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/driver"
)

// run runs argv while it holds the lock.
func (a *app) run(o *runOptions, name string, argv []string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if o.shell {
		argv = []string{"/bin/sh", "-c", argv[0]}
	}
	path, err := child.Find(argv[0]) // a typo should not wait in line first
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, child.Signals()...)
	ctx, leave := leaveOnSignal(signals)
	defer leave()
	line := newWaitLine(name)
	cfg := holdfast.Config{
		Program: filepath.Base(argv[0]), Labels: o.labels,
		Observer: &holdfast.Observer{Waiting: line.news},
	}
	err = a.with(ctx, cfg, func(s *session) error {
		lease, err := s.take(ctx, o, name, line)
		if err == nil {
			// From here on signals are the command's.
			if err = leave(); err != nil {
				_ = lease.Release() // nothing was done under it
			}
		}
		if err != nil {
			return o.busy(err)
		}
		result, err := child.Run(&child.Command{
			Path: path, Args: argv, Env: s.environ(name, self(), lease.Token()),
			Signals: signals, Lost: a.lost(lease, o), KillAfter: o.killAfter,
			Valid:  func() bool { return lease.Err() == nil },
			Notice: func(text string) { a.say("%s: %s", show(name), text) },
		})
		released := lease.Release()
		switch {
		case err != nil:
			return err
		case result.Lost:
			return &failure{exitLost, nil} // said when it happened
		case errors.Is(released, holdfast.ErrLost):
			return &failure{exitLost, fmt.Errorf("the lock was lost before the command ended (with code %d): %w", result.ExitCode(), released)}
		case released != nil:
			a.say("the command has ended, but the lock could not be given back; it runs out within %v: %v", s.TTL(), released)
		}
		if result.Interrupted {
			a.die = result.Signal
		}
		if code := result.ExitCode(); code != 0 {
			return &failure{code, nil}
		}
		return nil
	})
	if came := leave(); came != nil {
		return came
	}
	return err
}

// lost is lease.Done with a word about what happens then.
func (a *app) lost(lease *holdfast.Lease, o *runOptions) <-chan struct{} {
	done := lease.Done()
	lost := make(chan struct{})
	go func() {
		<-done
		if errors.Is(lease.Err(), holdfast.ErrLost) {
			a.say("%s: %v; ending the command (TERM, KILL after %v)", show(lease.Name()), lease.Err(), o.killAfter)
			close(lost)
		}
	}()
	return lost
}

// take acquires the lock as o says.
func (s *session) take(ctx context.Context, o *runOptions, name string, line *waitLine) (*holdfast.Lease, error) {
	m := s.Mutex(name, o.lockOptions()...)
	if o.noWait || o.wait.set && o.wait.d == 0 {
		return m.TryLock(ctx)
	}
	if s.waitsForItself(ctx, name) {
		return nil, &failure{exitUsage, fmt.Errorf("%w: %s is held by the run that this one is part of, and would be waited for without end", holdfast.ErrDeadlock, show(name))}
	}
	shown, hide := context.WithCancel(ctx)
	hidden := make(chan struct{})
	go func() { defer close(hidden); line.show(shown, s.Client) }()
	defer func() { hide(); <-hidden }()
	return m.Lock(ctx)
}

// leaveOnSignal returns a context that ends when a signal arrives that asks to end. Until
// leave is called other signals are dropped; leave returns the signal that came, if one did.
func leaveOnSignal(signals <-chan os.Signal) (_ context.Context, leave func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		var came error
		for {
			select {
			case s := <-signals:
				ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
				if came == nil && slices.Contains(ends, s) {
					came = signaled{s.(syscall.Signal)}
					cancel(came)
				}
			case <-stop:
				stopped <- came
				return
			}
		}
	}()
	return ctx, sync.OnceValue(func() error {
		close(stop)
		defer cancel(nil)
		return <-stopped
	})
}

// self names this process as its locks do.
func self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s@%s:%d", userName(), host, os.Getpid())
}
