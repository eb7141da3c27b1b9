package cli

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

// catchSignals returns a channel that gets the signals of child.Signals.
func catchSignals() chan os.Signal {
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, child.Signals()...)
	return signals
}

// cancelOnSignal returns a context that ends when a signal asks this process to end. It calls others
// with each signal until the caller calls detach, which returns that signal, or nil.
func cancelOnSignal(signals <-chan os.Signal, others ...func(os.Signal)) (_ context.Context, detach func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		var caught error
		for {
			select {
			case s := <-signals:
				ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
				if caught == nil && slices.Contains(ends, s) {
					caught = signaled{s.(syscall.Signal)}
					cancel(caught)
				}
				for _, f := range others {
					f(s)
				}
			case <-stop:
				stopped <- caught
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
