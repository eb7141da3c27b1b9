package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutLatch = `A latch is a counter that goes down to zero once. Waiters wait for zero. A latch has no
holder, and exists until it is removed (Redis forgets it a day after its last use).

  holdfast latch set built 3                each of three builds ends with
  holdfast latch down built --id linux      ... counting down, once for its id, and
  holdfast latch wait built -w 10m          this waits for all of them`

func (a *app) latchCommand() *cobra.Command {
	c := group("latch", "Count down to zero, and wait for zero")
	c.Long = aboutLatch
	c.AddCommand(a.latchSet(), a.latchDown(), a.latchWait(), a.latchRemove())
	return c
}

func (a *app) latchSet() *cobra.Command {
	const most = "allowed are 0 and more, for example 3"
	return &cobra.Command{
		Use:         "set NAME N",
		Annotations: map[string]string{counts: most},
		Short:       "Create a latch that counts down from N; an existing one keeps its count",
		Long: `Create the latch NAME, which counts down from N. A latch that exists keeps its count, so that
several programs may each create it; remove it first to count again. With --store sqlite:PATH
this creates the file if it does not exist; the other latch commands do not.`,
		Args: exactly("the name of the latch", "the number to count from"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || n < 0 {
				return usagef("%s is not a number to count from: %s", show(args[1]), most)
			}
			return a.latch(a.creating, args[0], func(ctx context.Context, _ *session, l *holdfast.Latch) error {
				created, err := l.Set(ctx, n)
				if err != nil {
					return err
				}
				text := fmt.Sprintf("made: %s, %d left", show(args[0]), n)
				if !created {
					text = fmt.Sprintf("exists: %s, and keeps its count", show(args[0]))
				}
				_, err = fmt.Fprintln(a.stdout, text)
				return err
			})
		}),
	}
}

func (a *app) latchDown() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use:   "down NAME",
		Short: "Count a latch down by one and print what is left",
		Args:  exactly("the name of the latch"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("id") && id == "" {
				return usagef("--id is empty: expected any text, or leave it out")
			}
			return a.latch(a.existing, args[0], func(ctx context.Context, _ *session, l *holdfast.Latch) error {
				left, err := l.CountDown(ctx, id)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(a.stdout, left)
				return err
			})
		}),
	}
	c.Flags().
		StringVar(&id, "id", "", "count only once for this `ID`, however often it is given (default: count each time)")
	return c
}

func (a *app) latchWait() *cobra.Command {
	var wait seconds
	c := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until a latch is zero",
		Args:  exactly("the name of the latch"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			a.bound(wait)
			return a.latch(a.existing, args[0], func(ctx context.Context, s *session, l *holdfast.Latch) error {
				return waitLatch(ctx, s, l, args[0], wait)
			})
		}),
	}
	alsoTimeout(c)
	c.Flags().VarP(&wait, "wait", "w", "wait at most this long (`SECONDS` or a duration such as 1m30s)")
	return c
}

func (a *app) latchRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a latch; its waiters end with an error",
		Args:  exactly("the name of the latch"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			return a.latch(a.existing, args[0], func(ctx context.Context, _ *session, l *holdfast.Latch) error {
				if err := l.Remove(ctx); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.stdout, "removed: %s\n", show(args[0]))
				return err
			})
		}),
	}
}

func waitLatch(ctx context.Context, s *session, l *holdfast.Latch, name string, wait seconds) error {
	limited := ctx
	if wait.set {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, wait.d)
		defer cancel()
	}
	err := s.showDuring(limited, func() error { return l.Wait(limited) }, func(ctx context.Context) (line, key string) {
		r, err := s.Inspect(ctx, name)
		if err != nil || r.Kind != "latch" {
			return "", ""
		}
		return fmt.Sprintf("waiting for %s: %d left", show(name), r.Count), strconv.FormatInt(r.Count, 10)
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	// The timeout does not show whether the store has answered.
	r, err := s.Inspect(ctx, name)
	switch {
	case err != nil:
		return err
	case r.Kind != "latch":
		return holdfast.ErrGone
	case r.Count > 0:
		return &failure{exitBusy, fmt.Errorf("latch %s is not at zero after %s: %d left", show(name), span(wait.d), r.Count)}
	}
	return nil
}

// creating is with for a command that creates what does not exist.
func (a *app) creating(ctx context.Context, f func(*session) error) error {
	return a.with(ctx, holdfast.Config{}, f)
}

// latch runs f until a signal asks to end. with is existing or creating.
func (a *app) latch(with func(context.Context, func(*session) error) error, name string,
	f func(context.Context, *session, *holdfast.Latch) error) error {
	ctx, detach := cancelOnSignal(catchSignals())
	err := with(ctx, func(s *session) error {
		err := f(ctx, s, s.Latch(name))
		if errors.Is(err, holdfast.ErrGone) {
			return &failure{exitRefused, fmt.Errorf("there is no latch %s", show(name))}
		}
		return err
	})
	if caught := detach(); caught != nil && err != nil {
		return caught
	}
	return err
}
