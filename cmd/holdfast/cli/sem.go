package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

func (a *app) semCommand() *cobra.Command {
	c := group("sem", `Change a semaphore ("run --limit" uses one, info shows it)`)
	clear := false
	limit := &cobra.Command{
		Use:   "limit NAME [M]",
		Short: "Set how many permits a semaphore has",
		Long: `Set how many permits the semaphore NAME has, whether anybody uses it or not. The limit stays until
it is set again or removed by --clear. Until then NAME is a semaphore, even if nobody uses it: ls
shows it, and other kinds of lock are refused. A lower limit takes nothing from holders; nothing is
granted until they fit again. Waiters keep waiting under the new limit.

While a limit is set, "run --permits N" uses it, also when it changes during the wait. If N is more
than the limit, run waits until somebody raises it. "run --limit M" with another M is refused.

While none is set, "run --permits N" without --limit is refused. The --limit of the first holder
counts until the last one has left.`,
		Example: `  holdfast sem limit encoders 4
  holdfast run --permits 1 encoders -- ./encode
  holdfast sem limit encoders --clear`,
		Args: func(c *cobra.Command, args []string) error {
			if clear {
				return exactly("the name of the semaphore")(c, args)
			}
			return exactly("the name of the semaphore", "the number of permits")(c, args)
		},
		RunE: ours(func(c *cobra.Command, args []string) error {
			if clear {
				return a.clearLimit(args[0])
			}
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 || n > driver.MaxLimit {
				return usagef("%s is not a number of permits: allowed are 1 to %d", show(args[1]), driver.MaxLimit)
			}
			return a.setLimit(args[0], n)
		}),
	}
	limit.Flags().BoolVar(&clear, "clear", false, "remove the limit that is set; it ends with its last user, and new callers need --limit")
	c.AddCommand(limit)
	return c
}

// group returns a command that only has subcommands.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: commandsOnly,
		RunE: onlyOthers,
	}
}

func onlyOthers(c *cobra.Command, _ []string) error { return usagef("say what to do%s", helpHint(c)) }

func (a *app) setLimit(name string, n int) error {
	ctx := context.Background()
	return a.creating(ctx, func(s *session) error {
		if err := s.SetLimit(ctx, name, n); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "%s: the limit is now %d\n", show(name), n)
		return err
	})
}

func (a *app) clearLimit(name string) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		switch err := s.SetLimit(ctx, name, 0); {
		case errors.Is(err, holdfast.ErrGone):
			return &failure{exitRefused, fmt.Errorf("%s has no limit that is set", show(name))}
		case err != nil:
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "%s: no limit is set now\n", show(name))
		return err
	})
}
