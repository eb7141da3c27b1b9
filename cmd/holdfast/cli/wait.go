package cli

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

// waitAgain is how often wait reads the record without a hint from the store.
const waitAgain = time.Second

const aboutWait = `Wait until nobody holds NAME, and it is not kept for a minimum hold. Of a semaphore no permit is in
use then, and of a quorum a majority is free. wait takes no lock and stands in no queue: waiters get
the name first, and somebody may have taken it again when the next command runs. Only "holdfast run"
runs a command under the lock.

Exit codes: 0 the name is free; 75 it was not within -w. Other codes are as for every command.
For a latch there is "holdfast latch wait".`

func (a *app) waitCommand() *cobra.Command {
	var limit seconds
	c := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock, without taking it",
		Long:  aboutWait,
		Example: `  holdfast wait deploy/prod && echo free
  holdfast wait -w 5m deploy/prod`,
		Args: exactly("the name of the lock"),
		RunE: ours(func(c *cobra.Command, args []string) error { return a.wait(args[0], limit) }),
	}
	alsoTimeout(c)
	c.Flags().VarP(&limit, "wait", "w", "wait at most this long (`SECONDS` or a duration such as 1m30s)")
	return c
}

// wait returns when nobody holds or keeps name.
func (a *app) wait(name string, limit seconds) error {
	if err := checkNames(name); err != nil {
		return err
	}
	a.bound(limit)
	ctx, detach := cancelOnSignal(catchSignals())
	err := a.existing(ctx, func(s *session) error {
		if !limit.set || limit.d > 0 {
			if permits, _ := s.heldAbove(ctx, name); permits > 0 {
				return neverEnds(name)
			}
		}
		over := make(<-chan time.Time) // never
		if limit.set {
			over = time.After(limit.d)
		}
		var last atomic.Pointer[reading]
		return s.showDuring(ctx, func() error { return a.untilFree(ctx, s, name, over, &last) },
			func(context.Context) (line, key string) {
				r := last.Load()
				if r == nil {
					return "", ""
				}
				h := r.holder()
				return fmt.Sprintf("%s is %s", show(name), describe(h)), h.ID
			})
	})
	if caught := detach(); caught != nil {
		return caught
	}
	return err
}

// reading is what a record has said of its first holder, and when.
type reading struct {
	first holdfast.Holder
	at    time.Time
}

// holder returns the holder as it is now, unless it has renewed its lease since the reading.
func (r *reading) holder() *holdfast.Holder { return since(&r.first, time.Since(r.at)) }

// untilFree reads the record when the store hints at a change, and from time to time, until over. It
// notes the last one.
func (a *app) untilFree(ctx context.Context, s *session, name string, over <-chan time.Time,
	last *atomic.Pointer[reading]) error {
	hints := make(chan struct{}, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		// Without hints the ticker is enough.
		_ = s.store.Watch(watching, name, func(changed string) {
			if changed != "" && changed != name {
				return
			}
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	}()
	tick := time.NewTicker(waitAgain)
	defer tick.Stop()
	for silent := false; ; {
		r, err := s.Inspect(ctx, name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && r.Kind == "latch":
			return fmt.Errorf("%w: %s is a latch: holdfast latch wait %s", holdfast.ErrKind, show(name), typed(name))
		case err == nil && len(r.Holders)+len(r.Partial) == 0:
			return nil
		case err == nil:
			silent = false
			last.Store(&reading{slices.Concat(r.Holders, r.Partial)[0], time.Now()})
		case !isOutage(err):
			return err
		case !silent:
			silent = true
			a.say("%s; still waiting", oneLine(err.Error()))
		}
		select {
		case <-hints:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return a.notFree(name, last.Load())
		}
	}
}

// notFree is the error of a wait that took too long.
func (a *app) notFree(name string, r *reading) error {
	if r == nil {
		return &failure{exitUnavailable, fmt.Errorf("%s: the store has not said whether it is free", show(name))}
	}
	return &failure{exitBusy, fmt.Errorf("%s is still %s", show(name), describe(r.holder()))}
}
